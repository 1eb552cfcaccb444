"""Everything of ours on ::1 alone: what it serves, what calls it, and how it reaches the API
server.

The API server itself stays where the suite has it; the service and the webhook reach it by an
address of IPv6 through a wire. Skipped where the machine has no IPv6.
"""

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.backend import Backend
from tests.e2e.processes import free_port
from tests.e2e.scenario import Setup, System
from tests.e2e.tcp_proxy import TcpProxy

LOOPBACK = "::1"


@pytest.fixture(autouse=True)
def needs_ipv6() -> None:
    try:
        socket.create_server((LOOPBACK, 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")


class Ipv6System(System):
    """An installation that knows no address of IPv4."""

    def __init__(self, backend: Backend, directory: Path) -> None:
        super().__init__(backend, directory, Setup(host=LOOPBACK))
        self.wire: TcpProxy | None = None

    async def kubeconfig_for(self, account: str) -> Path:
        """With the API server at an address of IPv6, and its certificate by its name."""
        path = await super().kubeconfig_for(account)
        config = yaml.safe_load(path.read_text())
        (cluster,) = config["clusters"]
        server = urlsplit(cluster["cluster"]["server"])
        assert server.hostname is not None
        assert server.port is not None
        if self.wire is None:
            self.wire = TcpProxy((LOOPBACK, free_port()), [(server.hostname, server.port)])
            await self.wire.start()
            self._stack.push_async_callback(self.wire.stop)
        cluster["cluster"]["server"] = f"{server.scheme}://[{LOOPBACK}]:{self.wire.address[1]}"
        if server.scheme == "https":
            cluster["cluster"]["tls-server-name"] = "localhost"
        path.write_text(json.dumps(config))
        return path


async def test_on_ipv6_alone_pods_are_stamped_and_bound_and_vpods_are_placed(
    backend: Backend, tmp_path: Path
):
    async with Ipv6System(backend, tmp_path) as system:
        assert "[::1]" in system.service_url
        assert "[::1]" in system.webhook_url
        await backend.add_nodes(3)
        await system.pool()
        await system.vpods(5, 8)
        await system.settled(pods=2)
