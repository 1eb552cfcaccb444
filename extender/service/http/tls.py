"""Which clients the extender serves beyond loopback.

A client that reaches the bind verb can bind pods. So beyond loopback, TLS with client certificates
is required. The client must have a certificate of the configured client CA; without one the
handshake fails. And its common name, or a name of its subjectAltName, must be in the list of
allowed clients, because a cluster's CA signs certificates for many unrelated clients. A CA of its
own for this purpose and a list of one name are recommended.

Certificate, key and client CA are renewed by replacing their files (``kube.serving.tls``).
kube-scheduler reads its client certificate again for each new connection, but never the CA by which
it verifies the extender, and it has no metric for either. So the extender reports when the client's
certificate ends (``ClientExpiry``).
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from extender.config.model import TlsConfig
from extender.kube.serving.tls import CertificateFiles

ANY_CLIENT: Final = "*"


def files_of(tls: TlsConfig) -> CertificateFiles | None:
    """The files to serve with. None if TLS is not configured."""
    return (
        CertificateFiles(tls.cert_file, tls.key_file, tls.client_ca_file) if tls.cert_file else None
    )


def certificate_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The common name and the subjectAltNames of a certificate as ``ssl.SSLSocket.getpeercert``
    returns it.
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
    """Whether a client with this certificate, verified by the handshake, may send requests."""
    return not tls.allowed_clients or not certificate_names(certificate).isdisjoint(
        tls.allowed_clients
    )


class ClientExpiry:
    """When the last certificate of each allowed client ends, by its name in the list.

    Names come from the configuration, never from a certificate, so their number is limited.
    """

    def __init__(self) -> None:
        self.not_after: dict[str, float] = {}
        """Epoch seconds by allowed name; ``*`` if every client of the CA is allowed."""
        self._last: Mapping[str, Any] | None = None

    def note(self, certificate: Mapping[str, Any] | None, tls: TlsConfig) -> None:
        """Note an allowed client's request. Cheap, because all requests of a connection have the
        same object.
        """
        if not certificate or certificate is self._last:
            return
        self._last = certificate
        end = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        names = certificate_names(certificate)
        for name in [name for name in tls.allowed_clients if name in names] or [ANY_CLIENT]:
            self.not_after[name] = end
