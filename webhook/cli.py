"""``vreplica-webhook``: reads the settings, wires the parts together, and stops them in order.

    reflectors --> caches --> server  <-- TLS context <-- certificate manager <-- directory or Secret
                                                              `--> caBundle in both webhook configurations

The server listens as soon as there is a certificate; caches fill meanwhile (``/readyz`` says when). Certificates and
registration are looked after once a minute: rotation, a Secret that another replica renewed, manifests applied anew.
On SIGTERM or SIGINT ``/readyz`` says no, the server goes on for ``--shutdown-delay-seconds`` while the Service's
endpoints forget it, answers what is in flight, and the process ends with 0.
"""

import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from extender.core.errors import VReplicaError
from extender.kube.api import Api, ApiError
from extender.kube.client import KubeApi
from extender.kube.one_line import OneLineFormatter
from extender.kube.reflector import Reflector
from webhook.caches import WebhookCaches
from webhook.certs import CertificateError, CertificateManager, DirectoryStore, SecretStore
from webhook.registration import CONFIGURATION_NAME, register
from webhook.server import WebhookServer
from webhook.settings import Settings, SettingsError, parser, settings_from

_log: Final = logging.getLogger("webhook")
UPKEEP_PERIOD_S: Final = 60.0
RETRY_PERIOD_S: Final = 5.0
"""Until the next try when certificates or registration failed."""
START_ATTEMPTS_MAX: Final = 24
"""Tries to get a first certificate: two minutes in which the API server may come up."""


class Webhook:
    """The running webhook."""

    def __init__(self, settings: Settings, api: Api) -> None:
        self._settings = settings
        self._api = api
        self._certificates = CertificateManager(
            SecretStore(api, *settings.secret)
            if settings.secret
            else DirectoryStore(Path(settings.cert_dir)),
            settings.hosts,
            now=time.time,
        )
        self._caches = WebhookCaches()
        self._server = WebhookServer(
            self._caches,
            settings.rules,
            tls=self._certificates.context,
            not_after=lambda: self._certificates.not_after,
            scheduler_name=settings.scheduler_name,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises CertificateError, OSError (the port is taken)."""
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(
                    Reflector(self._api, resource, sink, rng=random.Random()).run(), name=resource.plural
                )
                for resource, sink in self._caches.sinks.items()
            ]
            try:
                if await self._first_certificate(stop):
                    port = await self._server.start(self._settings.host, self._settings.port)
                    _log.info("serving on https://%s:%d", self._settings.host, port)
                    loops.append(tasks.create_task(self._upkeep(), name="upkeep"))
                    await stop.wait()
                    _log.info("shutting down")
                    self._server.draining = True
                    await asyncio.sleep(self._settings.shutdown_delay_s)
            finally:
                await self._server.stop()
                for loop in loops:
                    loop.cancel()

    async def _first_certificate(self, stop: asyncio.Event) -> bool:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            try:
                await self._certificates.ensure()
            except (ApiError, CertificateError) as error:
                if attempt == START_ATTEMPTS_MAX:
                    raise CertificateError(f"no certificate after {attempt} tries: {error}") from error
                _log.warning("no certificate yet: %s", error)
            else:
                return True
            if await _set_within(stop, RETRY_PERIOD_S):
                break
        return False

    async def _upkeep(self) -> None:
        """Certificates and registration, for ever: once a minute, sooner after a failure."""
        told = ""
        while True:
            problem = ""
            try:
                bundle = await self._certificates.ensure()
                if missing := await register(self._api, bundle.ca_pem, url=self._settings.url):
                    problem = f"no {' and no '.join(missing)} {CONFIGURATION_NAME} yet: apply the manifests"
            except (ApiError, CertificateError, OSError) as error:
                problem = str(error)
            if problem != told:
                _log.warning("certificate and registration: %s", problem or "all well again")
            told = problem
            await asyncio.sleep(RETRY_PERIOD_S if problem else UPKEEP_PERIOD_S)


async def _set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def serve(settings: Settings) -> None:
    """Connect, serve, and close after SIGTERM or SIGINT. Raises VReplicaError, OSError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await KubeApi.connect(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        user_agent="vreplica-webhook",
        qps=settings.qps,
        burst=settings.burst,
    )
    try:
        await Webhook(settings, api).run(stop)
    finally:
        await api.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``vreplica-webhook``: 0 stopped on request, 1 could not go on, 2 wrong settings."""
    try:
        settings = settings_from(parser().parse_args(arguments))
    except SettingsError as error:
        print(f"vreplica-webhook: {error}", file=sys.stderr)
        return 2
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler])
    try:
        uvloop.run(serve(settings))
    except (VReplicaError, OSError) as error:
        print(f"vreplica-webhook: {error}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as errors:
        # Out of the task group. What is not ours in it is a defect, and goes on with its traceback.
        ours, others = errors.split((VReplicaError, OSError))
        if others is not None:
            raise
        for leaf in _leaves(ours):
            print(f"vreplica-webhook: {leaf}", file=sys.stderr)
        return 1
    return 0


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [] if error is None else [error]


if __name__ == "__main__":
    sys.exit(main())
