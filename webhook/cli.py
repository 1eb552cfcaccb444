"""``vreplica-webhook``: reads the settings, wires the parts together, and stops them in order.

    reflectors --> caches --> server  <-- TLS context <-- certificates <-- Secret, directory, or
                                                           |               files that others renew
                                                           `--> upkeep --> caBundle in both webhook
                                                                           configurations

The server listens as soon as there is a certificate. Caches fill meanwhile, and ``/readyz`` says
when they are full. Upkeep looks once a minute for work: rotation, a Secret that another replica
renewed, manifests that were applied anew.

With ``--upkeep=none``, this process does no upkeep. Another one, with ``--upkeep=only``, then does
it, without server and caches. So the identity that may write registrations and the Secret is not
the one that clients reach through the port. With ``--ca-config-map``, that process keeps the
certificate of another server, and publishes its authorities in ConfigMaps (``ca_config_maps``).

On SIGTERM or SIGINT, ``/readyz`` fails. The server goes on for ``--shutdown-delay-seconds``, while
the Service's endpoints forget it. It then answers what is in flight, and the process exits with 0.
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

from extender.kube.api import VREPLICAQUOTAS, Api
from extender.kube.client import KubeApi
from extender.kube.first_errors import describe_error
from extender.kube.reflector import Reflector, ReflectorSettings
from extender.kube.serving.sockets import host_port
from extender.kube.serving.tls import CertificateFiles
from extender.kube.troubles import Troubles
from extender.model.errors import VReplicaError
from extender.telemetry import trace_export, tracing
from extender.telemetry.logs import set_up
from webhook.ca_config_maps import CAConfigMaps
from webhook.caches import WebhookCaches
from webhook.certs import CertificateManager, FileCertificates, StoredCertificates
from webhook.evictions import Evictions
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
            evictions=Evictions(api, self._caches, now=time.time, lease=settings.lease),
            stamp=settings.stamp,
        )
        self._server.metrics.add_process()
        self._reflectors = self._new_reflectors()
        self._server.metrics.add_reflectors(self._reflectors)
        self._server.metrics.add_upkeep(self._certificates.expiry, lambda: self._upkeep.failures)

    def _new_reflectors(self) -> list[Reflector]:
        troubles, made = Troubles(), []
        for resource, sink in self._caches.sinks.items():
            # A cluster may have the CRDs of an earlier version.
            settings = ReflectorSettings(may_be_absent=resource is VREPLICAQUOTAS)
            rng = random.Random()
            reflector = Reflector(self._api, resource, sink, rng=rng, settings=settings)
            reflector.troubles = troubles
            made.append(reflector)
        return made

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises CertificateError, OSError (such as a port that is
        taken).
        """
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(reflector.run(), name=reflector.resource.plural)
                for reflector in self._reflectors
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
                    self._server.shutting_down = True
                    await asyncio.sleep(self._settings.shutdown_delay_s)
            finally:
                await self._server.stop()
                for loop in loops:
                    loop.cancel()


class UpkeepOnly:
    """Upkeep without a server: renews the certificate and publishes its authorities."""

    def __init__(self, settings: Settings, api: Api) -> None:
        _, self._upkeep = upkeep_for(settings, api)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. Raises CertificateError if there is no certificate after two
        minutes.
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
    """Return the configured kind of certificate, and its upkeep."""
    rng = random.Random()
    certificates = certificates_for(settings, api, early=rng.random())
    if settings.ca_config_maps:
        config_maps = CAConfigMaps(
            api, settings.ca_config_maps, monotonic=time.monotonic, now=time.time
        )
        return certificates, Upkeep(certificates, config_maps, rng=rng, now=time.time)
    read_only = settings.upkeep is UpkeepMode.OTHER_PROCESS
    # It writes nothing, not even the address for development.
    registration = Registration(
        api,
        url="" if read_only else settings.url,
        name=settings.registration,
        monotonic=time.monotonic,
    )
    return certificates, Upkeep(
        certificates, registration, rng=rng, now=time.time, read_only=read_only
    )


def certificates_for(
    settings: Settings, api: Api, *, early: float
) -> StoredCertificates | FileCertificates:
    """Return the configured kind of certificate."""
    if settings.cert_files:
        return FileCertificates(CertificateFiles(*settings.cert_files), now=time.time)
    store = (
        SecretStore(api, *settings.secret)
        if settings.secret
        else DirectoryStore(Path(settings.cert_dir))
    )
    if settings.upkeep is UpkeepMode.OTHER_PROCESS:
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
            UpkeepOnly(settings, api) if not settings.upkeep.serves else Webhook(settings, api)
        )
        await program.run(stop)
    finally:
        await api.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``vreplica-webhook``. Exit codes: 0 stopped on request, 1 failed, 2 wrong settings."""
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
        # From the task group. Any other exception in it is a bug, and is raised with its traceback.
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
