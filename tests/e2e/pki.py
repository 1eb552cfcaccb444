"""Keys and certificates of a throw-away cluster: one authority, one serving certificate for
loopback, one signing key.

Theory of operation. Everything that serves TLS in the suite (kube-apiserver, the schedulers' health
ports) presents the same certificate, valid for 127.0.0.1 and localhost, and everything that
connects verifies it against the authority in its kubeconfig: no test runs with verification off, so
a client that forgot to verify or to pass a CA is found here. The extensions are those that
OpenSSL's strict mode (Python 3.13's default) asks for.
"""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS: Final = 2
SERVING_ADDRESSES: Final = ("127.0.0.1", "10.0.0.1")
"""Loopback, and the address that pods are told: the Service ``kubernetes`` has the first of its
range.
"""
SERVING_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Pki:
    """Paths of PEM files; ``sa_key``/``sa_pub`` sign and verify ServiceAccount tokens."""

    ca_cert: Path
    serving_cert: Path
    serving_key: Path
    sa_key: Path
    sa_pub: Path

    def ssl_context(self) -> ssl.SSLContext:
        """A client's context that trusts only this authority."""
        return ssl.create_default_context(cafile=str(self.ca_cert))


def create(folder: Path, *, now: datetime.datetime) -> Pki:
    """Writes all of it into ``folder``, private keys readable by the owner only."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, serving_key, sa_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    ca = _ca_certificate(ca_key, now)
    serving = _serving_certificate(serving_key.public_key(), ca, ca_key, now)
    pki = Pki(
        ca_cert=folder / "ca.crt",
        serving_cert=folder / "serving.crt",
        serving_key=folder / "serving.key",
        sa_key=folder / "sa.key",
        sa_pub=folder / "sa.pub",
    )
    pki.ca_cert.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    pki.serving_cert.write_bytes(serving.public_bytes(serialization.Encoding.PEM))
    _write_key(pki.serving_key, serving_key)
    _write_key(pki.sa_key, sa_key)
    pki.sa_pub.write_bytes(
        sa_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pki


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _builder(subject: str, issuer: x509.Name, now: datetime.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _ca_certificate(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder("e2e-ca", _name("e2e-ca"), now)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(subject_key, critical=False)
        .sign(key, hashes.SHA256())
    )


def _serving_certificate(
    key: ec.EllipticCurvePublicKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVING_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVING_ADDRESSES]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder("e2e-serving", ca.subject, now)
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
