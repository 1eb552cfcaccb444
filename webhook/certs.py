"""The certificate that the webhook serves: one of its own authority, or one that is in files.

``CertificateManager`` keeps a *bundle*: the webhook's own authorities and a serving certificate.
Every process that keeps it runs the same loop, and none is special. It loads the stored bundle,
asks ``webhook.rotation`` for the next step, and stores the result only if no other process has
stored one meanwhile. Otherwise it goes on with the other one. It repeats this until no step is
left. So all replicas serve certificates of authorities of one bundle. The caBundle in the webhook
configurations is that bundle's ``ca.crt``, and is right for all of them.

``StoredCertificates`` serves a bundle that another process keeps. The shipped webhook runs it,
because the process with the open port should have no right to write.

``FileCertificates`` serves files that cert-manager or a person renews.

In each case, a new certificate is a new TLS context behind the one that the server has
(``extender.kube.serving.tls``). Connections and handshakes that have begun go on.
"""

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from extender.kube.serving.tls import (
    ServingCertificate,
    SwitchedContext,
    server_context,
)
from extender.model.errors import VReplicaError
from webhook.rotation import STEPS_MAX, Bundle, is_usable, next_step
from webhook.stores import CertificateStore
from webhook.x509 import served_form

_log: Final = logging.getLogger(__name__)
RACES_MAX: Final = 8
"""How often other replicas may be faster before this one gives up. Once is usual, at the first
start.
"""


class CertificateError(VReplicaError):
    """There is no usable certificate, or it could not be renewed. The message says why."""


class Certificates(Protocol):
    """What the server and the upkeep need. One task calls it."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the server. It is always the same object, usable once ``served_pem`` is not empty."""
        ...

    @property
    def served_pem(self) -> bytes:
        """The certificate in use, with the intermediate ones; b"" before there is one."""
        ...

    def expiry(self) -> Mapping[str, float]:
        """When the certificates in use end, in epoch seconds, by their use."""
        ...

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:
        """Renew what is due, and use what is new. Return the bundle whose authorities belong into
        every caBundle; None if another process writes these.

        ``published`` are fingerprints of authorities that may sign. Raises ApiError,
        CertificateError, OSError; the certificate in use then stays in use.
        """
        ...


class StoredCertificates:
    """Serves a bundle that another process renews. ``now`` is wall-clock time, epoch seconds."""

    def __init__(
        self, store: CertificateStore, hosts: Sequence[str], *, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._hosts = tuple(hosts)
        self._now = now
        self._current: Bundle | None = None
        self._switch = SwitchedContext()

    @property
    def context(self) -> ssl.SSLContext:
        """See ``Certificates``."""
        return self._switch.front

    @property
    def served_pem(self) -> bytes:
        """See ``Certificates``."""
        return b"" if self._current is None else self._current.cert_pem

    def expiry(self) -> Mapping[str, float]:
        """The ends of ``serving`` and of ``authority``, which is the authority that signs."""
        return {} if self._current is None else self._current.expiry()

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:  # noqa: ARG002
        """See ``Certificates``."""
        stored = await self._store.load()
        if stored.bundle is not None:
            await self._use_if_usable(stored.bundle)
        if stored.bundle is None or stored.bundle != self._current:
            raise CertificateError(
                "what is stored cannot be served (yet): does the process run that renews it "
                "(vreplica-webhook --upkeep=only)?"
            )
        return None

    async def _use_if_usable(self, bundle: Bundle) -> None:
        """Serve what is stored if it is usable, even if it cannot be renewed."""
        if bundle == self._current:
            return
        if not await asyncio.to_thread(is_usable, bundle, self._hosts, now_s=self._now()):
            return
        try:
            context = await asyncio.to_thread(_context_of, bundle)
        except ssl.SSLError as error:
            raise CertificateError(
                f"the TLS library does not take tls.crt and tls.key as they are: {error}"
            ) from error
        self._switch.use(context)
        self._current = bundle


class CertificateManager(StoredCertificates):
    """Renews a bundle. ``early`` is this replica's share of the jitter, 0 to 1."""

    def __init__(
        self,
        store: CertificateStore,
        hosts: Sequence[str],
        *,
        now: Callable[[], float],
        early: float = 0.0,
    ) -> None:
        super().__init__(store, hosts, now=now)
        self._early = early

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle:
        """See ``Certificates``."""
        races = steps = 0
        while races < RACES_MAX and steps < STEPS_MAX:
            stored = await self._store.load()
            # Key generation and signature checks take milliseconds: not on the event loop.
            step = await asyncio.to_thread(
                next_step,
                stored.bundle,
                self._hosts,
                now_s=self._now(),
                published=published,
                early=self._early,
            )
            if stored.bundle is not None:
                await self._use_if_usable(stored.bundle)
                if step is None:
                    return stored.bundle
            assert step is not None
            if await self._store.save(step.bundle, stored.version):
                _log.info("certificates: %s, because %s", step.name, step.reason)
                steps += 1
            else:
                races += 1
        raise CertificateError(
            f"the certificate was written {races} times by other replicas and {steps} times by "
            f"this one, "
            "and is still not right: is somebody else writing it?"
        )


class FileCertificates(ServingCertificate):
    """A certificate that somebody else renews by replacing its files. They also fill in the
    caBundle.
    """

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:  # noqa: ARG002
        """See ``Certificates``."""
        if not self.served_pem:
            await asyncio.to_thread(self.load)
        elif self.problem:
            raise CertificateError(self.problem)
        return None

    def look(self) -> None:
        """Use new files. ``Upkeep`` warns of the end."""
        self.reload_if_changed()


def _context_of(bundle: Bundle) -> ssl.SSLContext:
    """Return a context that serves the bundle. ``ssl`` reads only files, so they exist for a
    moment, readable by this user alone.
    """
    context = server_context()
    with tempfile.TemporaryDirectory(prefix="vreplica-webhook-") as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        serving = served_form(bundle.serving)
        certificate.write_bytes(serving.cert_pem)
        key.touch(mode=0o600)
        key.write_bytes(serving.key_pem)
        context.load_cert_chain(certificate, key)
    return context
