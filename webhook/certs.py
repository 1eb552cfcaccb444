"""The certificate that the webhook serves, as one of two kinds: its own authority's, or what is in
files.

``CertificateManager`` is the first kind. Every process that keeps the bundle runs the same loop and
none is special: load the stored bundle, ask ``webhook.rotation`` for the next step, store its
result under the condition that nobody else has stored one meanwhile, and look again until no step
is left. Who loses that race loads the winner's. So all replicas serve certificates of authorities
of one bundle, and the caBundle in the webhook configurations, which is that bundle's ``ca.crt``, is
right for all of them.

``StoredCertificates`` is the same for a process that may not write: another one keeps the bundle,
this one serves what is in it. The shipped webhook is such a one: what its port might be made to do,
it has no right to.

``FileCertificates`` is the second: cert-manager or a person renews the files, and we only notice.

Either way a new certificate is a new TLS context behind the one that the server has
(``extender.kube.serving.tls``): connections and handshakes that have begun go on.
"""

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from extender.kube.serving.tls import (
    RELOAD_PERIOD_S,
    CertificateFiles,
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
"""Times that another replica may be faster before we give up; one is usual, at the first start."""


class CertificateError(VReplicaError):
    """There is no usable certificate, or it could not be renewed, and why."""


class Certificates(Protocol):
    """What the server and the upkeep need; called by one task."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the server; always the same one, usable once ``served_pem`` is not empty."""
        ...

    @property
    def served_pem(self) -> bytes:
        """The certificate in use, with what links it to its authority; b"" before there is one."""
        ...

    def expiry(self) -> Mapping[str, float]:
        """When what is in use ends, epoch seconds, by what it is for."""
        ...

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:
        """Renew what is due, and use what is new. The bundle whose authorities belong into every
        caBundle; None: not ours to say.

        ``published``: fingerprints of authorities that may sign by now. Raises ApiError,
        CertificateError, OSError; the certificate in use stays in use then.
        """
        ...


class StoredCertificates:
    """Serves a bundle that another process keeps good. ``now`` is wall-clock time, epoch
    seconds.
    """

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
        """``serving`` and ``authority``, the one that signs."""
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
        """What is stored is served even while it cannot be renewed, and even if that is all that
        can be done.
        """
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
    """Keeps a bundle good. ``early`` is this replica's share of the jitter, 0 to 1."""

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


class FileCertificates:
    """A certificate that somebody else renews by replacing its files; the caBundle is
    theirs, too.
    """

    def __init__(self, cert_file: str, key_file: str, *, now: Callable[[], float]) -> None:
        self._certificate = ServingCertificate(CertificateFiles(cert_file, key_file), now=now)

    @property
    def context(self) -> ssl.SSLContext:
        """See ``Certificates``."""
        return self._certificate.context

    @property
    def served_pem(self) -> bytes:
        """See ``Certificates``."""
        return self._certificate.cert_pem

    def expiry(self) -> Mapping[str, float]:
        """``serving``."""
        return self._certificate.expiry()

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:  # noqa: ARG002
        """See ``Certificates``."""
        if not self.served_pem:
            await asyncio.to_thread(self._certificate.load)
        elif self._certificate.problem:
            raise CertificateError(self._certificate.problem)
        return None

    async def run(self) -> None:
        """Follow the files, for ever; once ``ensure`` has loaded them."""
        while True:
            await asyncio.to_thread(self._certificate.reload_if_changed)
            await asyncio.sleep(RELOAD_PERIOD_S)


def _context_of(bundle: Bundle) -> ssl.SSLContext:
    """A context that serves it; ``ssl`` reads files only, so they exist for a moment, for this user
    alone.
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
