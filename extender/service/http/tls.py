"""Whose clients the extender serves, beyond loopback.

Who may call bind may bind pods, so beyond loopback there is no listening without TLS, and no TLS
without client certificates. A client must have a certificate of our client CA (without one the
handshake fails), and its name, the subject's common name or a name of its subjectAltName, must be
on the list: a cluster's CA signs for many who have nothing to do with us. A CA of its own for this
purpose and a list of one name is what we advise.

Certificate, key and client CA are renewed by replacing their files (``kube.serving.tls``).
kube-scheduler reads its client certificate again for each new connection, the CA by which it knows
us never, and has no metric for either; so it is we who say when its certificate ends
(``ClientExpiry``).
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from extender.config.model import TlsConfig
from extender.kube.serving.tls import CertificateFiles

ANY_CLIENT: Final = "*"


def files_of(tls: TlsConfig) -> CertificateFiles | None:
    """The files to serve with; None where TLS is not configured."""
    return (
        CertificateFiles(tls.cert_file, tls.key_file, tls.client_ca_file) if tls.cert_file else None
    )


def certificate_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The names in a peer's certificate, as ``ssl.SSLSocket.getpeercert`` gives it: common name and
    subjectAltName.
    """
    if not certificate:
        return frozenset()
    common = [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    return frozenset([*common, *(value for _, value in certificate.get("subjectAltName", ()))])


def is_allowed(certificate: Mapping[str, Any] | None, tls: TlsConfig) -> bool:
    """Whether a client with that certificate, which the handshake has verified, may ask us
    anything.
    """
    return not tls.allowed_clients or not certificate_names(certificate).isdisjoint(
        tls.allowed_clients
    )


class ClientExpiry:
    """When the certificates end that allowed clients have come with last, by the name that is on
    the list.

    Names come from the configuration, never from a certificate, so there are no more of them than
    it has.
    """

    def __init__(self) -> None:
        self.not_after: dict[str, float] = {}
        """Epoch seconds by allowed name; ``*`` where every client of the CA is allowed."""
        self._last: Mapping[str, Any] | None = None

    def note(self, certificate: Mapping[str, Any] | None, tls: TlsConfig) -> None:
        """A request of a client that is allowed. Cheap: one connection's requests come with the
        same object.
        """
        if not certificate or certificate is self._last:
            return
        self._last = certificate
        end = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        names = certificate_names(certificate)
        for name in [name for name in tls.allowed_clients if name in names] or [ANY_CLIENT]:
            self.not_after[name] = end
