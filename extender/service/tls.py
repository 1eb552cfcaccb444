"""The extender's TLS: its certificate, whose clients are served, and files that are replaced while it runs.

Who may call bind may bind pods, so beyond loopback there is no listening without TLS, and no TLS without client
certificates. A client must have a certificate of our client CA (without one the handshake fails), and its name, the
subject's common name or a name of its subjectAltName, must be on the list: a cluster's CA signs for many who have
nothing to do with us. A CA of its own for this purpose and a list of one name is what we advise.

Certificates are renewed by replacing their files, as a mounted Secret is: they are looked at every
``RELOAD_PERIOD_S``, and connections that come after are served with the new one; those that exist go on. A new pair is
tried on a context of its own first, because OpenSSL drops the old key when it is given a certificate that it does not
go with, as between the replacing of two files. A client CA that is added is trusted from then on; one that is taken
away is trusted until a restart.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from extender.service.config import TlsConfig

log: Final = logging.getLogger(__name__)

RELOAD_PERIOD_S: Final = 10.0


class ServingCertificate:
    """The context of a server, kept up to date with its files."""

    def __init__(self, tls: TlsConfig) -> None:
        """Raises OSError, ssl.SSLError for files that cannot be used."""
        self._tls = tls
        self._seen = _stamps(tls)
        self.context = _context(tls)
        self.reloads = 0

    async def run(self) -> None:
        """Reload whenever the files have changed, for ever."""
        while True:
            await asyncio.sleep(RELOAD_PERIOD_S)
            await asyncio.to_thread(self.reload_if_changed)

    def reload_if_changed(self) -> bool:
        """Use what is in the files now; False where nothing has changed, or it cannot be used (yet): then it is logged."""
        try:
            stamps = _stamps(self._tls)
            if stamps == self._seen:
                return False
            _context(self._tls)
            _load(self.context, self._tls)
        except OSError as error:  # ssl.SSLError is one
            log.warning("certificate in %s not reloaded, the old one stays: %s", self._tls.cert_file, error)
            return False
        self._seen = stamps
        self.reloads += 1
        log.info("certificate reloaded from %s", self._tls.cert_file)
        return True


def certificate_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The names in a peer's certificate, as ``ssl.SSLSocket.getpeercert`` gives it: common name and subjectAltName."""
    if not certificate:
        return frozenset()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return frozenset([*common, *(value for _, value in certificate.get("subjectAltName", ()))])


def is_allowed(certificate: Mapping[str, Any] | None, tls: TlsConfig) -> bool:
    """Whether a client with that certificate, which the handshake has verified, may ask us anything."""
    return not tls.allowed_clients or not certificate_names(certificate).isdisjoint(tls.allowed_clients)


def _context(tls: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.client_ca_file:
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, tls)
    return context


def _load(context: ssl.SSLContext, tls: TlsConfig) -> None:
    context.load_cert_chain(tls.cert_file, tls.key_file)
    if tls.client_ca_file:
        context.load_verify_locations(tls.client_ca_file)


def _stamps(tls: TlsConfig) -> tuple[tuple[int, int, int], ...]:
    """What tells a file from the one that was there before. Raises OSError."""
    files = [name for name in (tls.cert_file, tls.key_file, tls.client_ca_file) if name]
    stats = [Path(name).stat() for name in files]
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)
