"""The TLS side of a server whose certificate changes while it runs.

    listener ── front context ──► handshake ── sni_callback ──► the context in use at that moment

``SSLContext.load_cert_chain`` is not safe on a context in use. It loads certificate and key one
after the other, and a handshake that begins in between finds a certificate without its key, and
fails. So a context is never changed once it has been used. Each new certificate or client CA gets a
context of its own, which is complete before a handshake sees it. The front context has no
certificate, and hands every handshake to the context in use. Existing connections keep theirs. The
trusted CAs belong to the context, so a CA that is taken away is not trusted from the next handshake
on. Sessions are not resumed, because that would skip the check of the client's certificate.

``ServingCertificate`` takes the certificate from files that somebody else replaces: a mounted
Secret, cert-manager's or a person's. It checks them every ``RELOAD_PERIOD_S``. Files that do not
match, as between the replacing of two of them, change nothing until they do.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

RELOAD_PERIOD_S: Final = 10.0
WARNED_FRACTION: Final = 0.2
"""If less than this part of its lifetime is left, a warning says that nobody has renewed the
certificate. Whoever renews at two thirds (cert-manager, the webhook itself) has then failed for a
while.
"""
WARNING_PERIOD_S: Final = 6 * 3600.0
CERTIFICATE_BYTES_MAX: Final = 1024 * 1024
"""A Secret holds no more."""


Stamps = tuple[tuple[int, int, int], ...]


class SwitchedContext:
    """A server's context behind which another one can be put at any time, by one assignment."""

    def __init__(self, *, client_certificates: bool = False) -> None:
        self.front = server_context()
        """For the listener. Handshakes fail until ``use`` has been called."""
        self._client_certificates = client_certificates
        if client_certificates:
            self.front.verify_mode = ssl.CERT_REQUIRED
        self.front.options |= ssl.OP_NO_TICKET
        self.front.num_tickets = 0
        self._in_use: ssl.SSLContext | None = None
        self.front.sni_callback = self._choose

    def use(self, context: ssl.SSLContext) -> None:
        """Use ``context`` for handshakes that begin from now on. It must not be changed any
        more.
        """
        self._in_use = context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str, _front: ssl.SSLContext
    ) -> int | None:
        """Called by OpenSSL for each handshake, even if the client names no server."""
        if self._in_use is None:
            return int(ssl.ALERT_DESCRIPTION_INTERNAL_ERROR)
        if self._client_certificates and connection.session_reused:
            # Only sessions of TLS 1.2 get here: OpenSSL keeps those even without tickets. The alert
            # makes the client forget its session.
            return int(ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE)
        connection.context = self._in_use
        return None


def server_context() -> ssl.SSLContext:
    """A server's context with the settings that all our servers share: TLS 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a certificate is valid, epoch seconds."""

    not_before: float
    not_after: float

    def is_overdue(self, now_s: float) -> bool:
        """Whether so little is left that it should have been renewed."""
        return self.not_after - now_s < WARNED_FRACTION * (self.not_after - self.not_before)

    def describe_end(self, now_s: float) -> str:
        """``ends in 3.0 days``, or ``ended 2.0 hours ago``."""
        left_s = self.not_after - now_s
        amount, unit = (
            (abs(left_s) / 86400, "days") if abs(left_s) > 86400 else (abs(left_s) / 3600, "hours")
        )
        return f"ends in {amount:.1f} {unit}" if left_s > 0 else f"ended {amount:.1f} {unit} ago"


class ExpiryWarning:
    """Says when to warn of a certificate that nobody renews: every ``WARNING_PERIOD_S``."""

    def __init__(self) -> None:
        self._warned_at_s = float("-inf")

    def due(self, validity: Validity | None, now_s: float) -> str:
        """What to say of the certificate's end now; "" for nothing."""
        if validity is None or not validity.is_overdue(now_s):
            self._warned_at_s = float("-inf")
            return ""
        if now_s - self._warned_at_s < WARNING_PERIOD_S:
            return ""
        self._warned_at_s = now_s
        return validity.describe_end(now_s)


def validity_of(pem: bytes) -> Validity:
    """The validity of the first certificate in ``pem``. Raises ValueError."""
    # Imported here, so that only servers with TLS pay for it: tens of milliseconds, and megabytes.
    from cryptography import x509  # noqa: PLC0415

    certificate = x509.load_pem_x509_certificate(pem)
    return Validity(
        certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    )


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: a serving certificate with its intermediates, its key, and the CAs whose clients
    are served ("": all clients).
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""

    def stamps(self) -> Stamps:
        """A value that differs once a file is replaced. Raises OSError."""
        stats = [Path(name).stat() for name in self._names()]
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def context(self) -> ssl.SSLContext:
        """A new context with what is in the files now. Raises OSError (ssl.SSLError is one)."""
        context = server_context()
        context.load_cert_chain(self.cert_file, self.key_file)
        if self.client_ca_file:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.client_ca_file)
        return context

    def _names(self) -> list[str]:
        return [name for name in (self.cert_file, self.key_file, self.client_ca_file) if name]


class ServingCertificate:
    """A server's context, kept up to date with its files. ``now`` is wall-clock time, epoch
    seconds.
    """

    def __init__(self, files: CertificateFiles, *, now: Callable[[], float] = time.time) -> None:
        self._files = files
        self._now = now
        self._switch = SwitchedContext(client_certificates=bool(files.client_ca_file))
        self._seen: Stamps | None = None
        self._expiry_warning = ExpiryWarning()
        self.problem = ""
        """Why the files' present content is not in use; "" if it is."""
        self.reloads = 0
        self.served_pem = b""
        """The certificate in use, with its intermediates; b"" before ``load``."""
        self._validity: Validity | None = None
        self._client_ca_not_after = 0.0

    def load(self) -> None:
        """Use what is in the files. Raises OSError or ssl.SSLError if they cannot be used."""
        self._seen = self._files.stamps()
        self._use(self._files.context())

    @property
    def context(self) -> ssl.SSLContext:
        """For the listener; always the same one."""
        return self._switch.front

    def expiry(self) -> Mapping[str, float]:
        """When the certificates in use expire, epoch seconds: ``serving``, and ``client_ca`` (the
        last of them) if there is one.
        """
        ends = {} if self._validity is None else {"serving": self._validity.not_after}
        if self._client_ca_not_after:
            ends["client_ca"] = self._client_ca_not_after
        return ends

    async def run(self) -> None:
        """Check the files every ``RELOAD_PERIOD_S``, for ever."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(RELOAD_PERIOD_S)

    def look(self) -> None:
        """Use new files, and warn of a certificate that nobody renews."""
        self.reload_if_changed()
        if end := self._expiry_warning.due(self._validity, self._now()):
            _log.warning(
                "the certificate in %s %s, and nobody has replaced it", self._files.cert_file, end
            )

    def reload_if_changed(self) -> bool:
        """Use what is in the files now. False if nothing has changed, or if it cannot be used
        (yet), which is logged.
        """
        try:
            stamps = self._files.stamps()
            if stamps == self._seen:
                self.problem = ""
                return False
            self._use(self._files.context())
        except Exception as error:  # noqa: BLE001 - whatever is in those files, who looks at them must not end
            self.problem = (
                f"certificate in {self._files.cert_file} not reloaded, the old one stays: {error}"
            )
            _log.warning("%s", self.problem)
            return False
        # Files that were replaced after the stamps were taken are looked at again next time.
        self._seen, self.problem = stamps, ""
        self.reloads += 1
        _log.info("certificate reloaded from %s", self._files.cert_file)
        return True

    def _use(self, context: ssl.SSLContext) -> None:
        self._switch.use(context)
        with Path(self._files.cert_file).open("rb") as file:
            self.served_pem = file.read(CERTIFICATE_BYTES_MAX)
        try:
            self._validity = validity_of(self.served_pem)
        except ValueError:  # replaced a moment ago; the next look finds it
            self._validity = None
        ends = [ssl.cert_time_to_seconds(str(ca["notAfter"])) for ca in context.get_ca_certs()]
        self._client_ca_not_after = float(max(ends, default=0))
