"""``PodsListener``: what the listeners for other pods have in common. They serve by TLS only, with
limits of their own, and take a new certificate from its files without a restart.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from extender.kube.serving.browsers import Sites, only_own_site
from extender.kube.serving.guard import CUT_REASONS, ConnectionLimits
from extender.kube.serving.listener import Listener
from extender.kube.serving.sockets import host_port
from extender.kube.serving.tls import CertificateFiles, ServingCertificate
from extender.service.http.callers import REFUSALS
from extender.service.http.overload import Gate
from extender.telemetry.exposition import Label
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

DRAIN_TIMEOUT_S: Final = 5.0


class PodsListener:
    """Serves between ``start`` and ``stop``. ``name``: of the configuration's section, and the
    first word of the metrics. ``who`` is served, as people say it.
    """

    def __init__(self, name: str, who: str, limits: ConnectionLimits) -> None:
        self._name = name
        self._who = who
        self.http = Listener(limits)
        self._certificate: ServingCertificate | None = None
        self._reloading: asyncio.Task[None] | None = None
        self.url = ""

    async def start(
        self, app: web.Application, host: str, port: int, files: CertificateFiles | None
    ) -> None:
        """Listen. Raises OSError if the port is taken or a file cannot be read, ssl.SSLError if a
        certificate does not load.
        """
        assert files is not None, "see config.rules"
        self._certificate = certificate = ServingCertificate(files)
        certificate.load()
        port = await self.http.start(app, host, port, tls=certificate.context)
        self.url = f"https://{host_port(host, port)}"
        self._reloading = asyncio.create_task(certificate.run(), name="certificate reload")
        log.info("%s are served on %s", self._who, self.url)

    async def stop(self, gate: Gate) -> None:
        """Let the requests of ``gate`` end, for at most ``DRAIN_TIMEOUT_S``, and close."""
        if not await gate.drained(DRAIN_TIMEOUT_S):
            log.warning("requests of %s still run after %g s", self._who, DRAIN_TIMEOUT_S)
        if self._reloading is not None:
            self._reloading.cancel()
        await self.http.stop()

    def expiry(self) -> Mapping[str, float]:
        """When the serving certificate and the last client CA end, epoch seconds."""
        ends = self._certificate.expiry() if self._certificate is not None else {}
        return {f"{self._name}_{name}": end for name, end in ends.items()}

    def add_metrics(self, metrics: Metrics, refused: Callable[[], Counter[str]]) -> None:
        """Declare the gauges and counters. ``refused``: requests by ``REFUSALS``."""
        listener = self.http
        metrics.gauge(
            f"{self._name}_connections",
            f"Open connections of the listener for {self._who}",
            None,
            lambda: float(listener.connections),
        )
        metrics.counter(
            f"{self._name}_connections_cut",
            f"Connections of the listener for {self._who} that were cut, by reason",
            Label("reason", CUT_REASONS),
            lambda: listener.cut,
        )
        metrics.counter(
            f"{self._name}_callers_refused",
            f"Requests of the listener for {self._who} refused for their caller, by reason",
            Label("reason", REFUSALS),
            refused,
        )


only_pods = only_own_site(lambda: Sites(checks_host=False))
"""A middleware: no browser is sent here by another site."""
