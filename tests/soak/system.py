"""``SoakSystem``: two replicas and the webhook of the end-to-end suite, each behind wires that can
be cut.

    kube-scheduler --front--> replica "steady" or "mortal"
    each replica, the webhook --its own wire--> API server

The steady replica and the webhook live as long as the soak: theirs are the numbers that must stay
flat. The mortal one is killed.
"""

from pathlib import Path
from typing import Final

import yaml

from tests.e2e.backend import Backend
from tests.e2e.objects import write_json
from tests.e2e.processes import Process, free_port
from tests.e2e.replica import Replica
from tests.e2e.scenario import Setup, System
from tests.e2e.tcp_proxy import Address, TcpProxy

ELECTION: Final = {"leaseDurationSeconds": 4, "renewDeadlineSeconds": 3, "retryPeriodSeconds": 1}
WATCH_TIMEOUT_S: Final = 6 * 3600.0


class SoakSystem(System):
    """``System`` with a second replica, and a wire before whatever is called."""

    def __init__(self, backend: Backend, directory: Path) -> None:
        self.front = TcpProxy(("127.0.0.1", free_port()), [])
        self.wires: list[TcpProxy] = []
        setup = Setup(
            default_scheduler=True,
            election=ELECTION,
            extender_url=_url(self.front.address),
            watch_timeout_s=WATCH_TIMEOUT_S,
        )
        super().__init__(backend, directory, setup)

    async def _install(self) -> None:
        self.front.upstreams = [_address(self.service_url)]
        await self.front.start()
        self._stack.push_async_callback(self.front.stop)
        await super()._install()
        self.mortal = await self.replica()
        await self.start(self.mortal)
        self.front.upstreams.append(_address(self.mortal.url))

    async def kubeconfig_for(self, account: str) -> Path:
        """As ``System``, through a wire of its own."""
        config = yaml.safe_load((await super().kubeconfig_for(account)).read_text())
        cluster = config["clusters"][0]["cluster"]
        scheme, _, host = str(cluster["server"]).partition("://")
        wire = TcpProxy(("127.0.0.1", free_port()), [_address(host)])
        await wire.start()
        self._stack.push_async_callback(wire.stop)
        self.wires.append(wire)
        cluster["server"] = f"{scheme}://127.0.0.1:{wire.address[1]}"
        return write_json(self._directory / f"wire-{len(self.wires)}.kubeconfig", config)

    @property
    def steady(self) -> Replica:
        """The replica that is never killed."""
        return self.service

    def programs(self) -> dict[str, Process]:
        """Our programs that run, by the name that the report gives them."""
        named = {
            "steady": self.steady.process,
            "mortal": self.mortal.process,
            "webhook": self.webhook,
        }
        return {name: process for name, process in named.items() if process is not None}


def _url(address: Address) -> str:
    return f"http://{address[0]}:{address[1]}"


def _address(url: str) -> Address:
    host, _, port = url.rpartition("://")[2].rpartition(":")
    return host, int(port)
