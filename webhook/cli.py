"""``vreplica-webhook``: reads the settings, wires the parts together, and stops them in order.

    reflectors --> caches --> server  <-- TLS context <-- certificates <-- Secret, directory, or
                                                           |               files of somebody else's
                                                           `--> upkeep --> caBundle in both webhook
                                                                           configurations

The server listens as soon as there is a certificate; caches fill meanwhile (``/readyz`` says when).
Certificates and registration are looked after once a minute: rotation, a Secret that another
replica renewed, manifests applied anew. ``--upkeep=none`` leaves the looking after to a process of
``--upkeep=only``, which has nothing but that: no server, no caches. So the identity that may write
registrations and the Secret is not the one that whoever reaches the port talks to.

On SIGTERM or SIGINT ``/readyz`` says no, the server goes on for ``--shutdown-delay-seconds`` while
the Service's endpoints forget it, answers what is in flight, and the process ends with 0.
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

from extender.kube.api import Api
from extender.kube.client import KubeApi
from extender.kube.first_errors import describe_error
from extender.kube.reflector import Reflector
from extender.kube.serving.listener import host_port
from extender.kube.troubles import Troubles
from extender.model.errors import VReplicaError
from extender.telemetry import trace_export, tracing
from extender.telemetry.logs import set_up
from webhook.caches import WebhookCaches
from webhook.certs import CertificateManager, FileCertificates, StoredCertificates
from webhook.registration import Registration
from webhook.server import WebhookServer
from webhook.settings import Settings, SettingsError, UpkeepMode, parser, settings_from
from webhook.stores import DirectoryStore, SecretStore
from webhook.upkeep import Upkeep

_log: Final = logging.getLogger("webhook")


class Webhook:
    """The running webhook."""

    def __init__(self, settings: Settings, api: Api) -> None:
        self._settings = settings
        self._api = api
        self._certificates, self._upkeep = upkeep_for(settings, api)
        self._caches = WebhookCaches()
        self._server = WebhookServer(
            self._caches,
            settings.rules,
            tls=self._certificates.context,
            stamp=settings.stamp,
        )
        self._server.metrics.add_process()
        self._server.metrics.add_upkeep(self._certificates.expiry, lambda: self._upkeep.failures)

    def _reflectors(self) -> list[Reflector]:
        troubles, made = Troubles(), []
        for resource, sink in self._caches.sinks.items():
            reflector = Reflector(self._api, resource, sink, rng=random.Random())
            reflector.troubles = troubles
            made.append(reflector)
        return made

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises CertificateError, OSError (the port is taken)."""
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(reflector.run(), name=reflector.resource.plural)
                for reflector in self._reflectors()
            ]
            try:
                if await self._upkeep.first_certificate(stop):
                    port = await self._server.start(self._settings.host, self._settings.port)
                    _log.info("serving on https://%s", host_port(self._settings.host, port))
                    loops.append(tasks.create_task(self._upkeep.run(), name="upkeep"))
                    if isinstance(self._certificates, FileCertificates):
                        loops.append(
                            tasks.create_task(self._certificates.run(), name="certificate files")
                        )
                    await stop.wait()
                    _log.info("shutting down")
                    self._server.draining = True
                    await asyncio.sleep(self._settings.shutdown_delay_s)
            finally:
                await self._server.stop()
                for loop in loops:
                    loop.cancel()


class Keeper:
    """Upkeep alone: renews the certificate and publishes its authorities, and serves nobody."""

    def __init__(self, settings: Settings, api: Api) -> None:
        _, self._upkeep = upkeep_for(settings, api)

    async def run(self, stop: asyncio.Event) -> None:
        """Look after both until ``stop`` is set. Raises CertificateError where there is none after
        two minutes.
        """
        if not await self._upkeep.first_certificate(stop):
            return
        _log.info("looking after the certificate and the registration")
        async with asyncio.TaskGroup() as tasks:
            upkeep = tasks.create_task(self._upkeep.run(), name="upkeep")
            await stop.wait()
            upkeep.cancel()


def upkeep_for(
    settings: Settings, api: Api
) -> tuple[StoredCertificates | FileCertificates, Upkeep]:
    """The kind of certificate that is configured, and what looks after it."""
    rng = random.Random()
    certificates = certificates_for(settings, api, early=rng.random())
    follows = settings.upkeep is UpkeepMode.NONE
    # Who follows writes nothing, the address for development included.
    registration = Registration(api, url="" if follows else settings.url, monotonic=time.monotonic)
    return certificates, Upkeep(certificates, registration, rng=rng, now=time.time, follows=follows)


def certificates_for(
    settings: Settings, api: Api, *, early: float
) -> StoredCertificates | FileCertificates:
    """The kind of certificate that is configured."""
    if settings.cert_files:
        return FileCertificates(*settings.cert_files, now=time.time)
    store = (
        SecretStore(api, *settings.secret)
        if settings.secret
        else DirectoryStore(Path(settings.cert_dir))
    )
    if settings.upkeep is UpkeepMode.NONE:
        return StoredCertificates(store, settings.hosts, now=time.time)
    return CertificateManager(store, settings.hosts, now=time.time, early=early)


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
        program = (
            Keeper(settings, api) if settings.upkeep is UpkeepMode.ONLY else Webhook(settings, api)
        )
        await program.run(stop)
    finally:
        await api.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``vreplica-webhook``: 0 stopped on request, 1 could not go on, 2 wrong
    settings.
    """
    try:
        settings = settings_from(parser().parse_args(arguments))
    except SettingsError as error:
        print(f"vreplica-webhook: {error}", file=sys.stderr)
        return 2
    set_up(settings.log_level, settings.log_format)
    trace_export.start("vreplica-webhook")
    try:
        uvloop.run(serve(settings))
    except (VReplicaError, OSError) as error:
        print(f"vreplica-webhook: {describe_error(error)}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as errors:
        # Out of the task group. What is not ours in it is a defect, and goes on with its traceback.
        ours, others = errors.split((VReplicaError, OSError))
        if others is not None:
            raise
        for leaf in _leaves(ours):
            print(f"vreplica-webhook: {describe_error(leaf)}", file=sys.stderr)
        return 1
    finally:
        tracing.stop()
    return 0


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [] if error is None else [error]


if __name__ == "__main__":
    sys.exit(main())
