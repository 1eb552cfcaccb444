"""The webhook's own small certificate authority: what a good bundle is, and how a better one is made. Pure.

    bundle    ca.crt   certificates to trust, newest first (the API server's caBundle)
              ca.key   key of the first of them
              tls.crt  serving certificate, signed by any of them
              tls.key  its key

Rotation never needs the API server and the webhook to switch at the same moment. A new authority is first only added
to ca.crt, a year before the old one ends; the serving certificate goes on and is signed by the new one at its own
next renewal, weeks later, when every caBundle has long had both. Only a bundle that is absent, broken or expired is
replaced as a whole.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME: Final = timedelta(days=3650)
CA_RENEWED_BEFORE_END: Final = timedelta(days=365)
SERVING_LIFETIME: Final = timedelta(days=90)
SERVING_RENEWED_BEFORE_END: Final = timedelta(days=30)
_BACKDATED: Final = timedelta(minutes=5)
"""For API servers whose clock is behind ours."""

FILE_NAMES: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")
"""Names of the parts, as files in a directory and as keys in a Secret."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Authority and serving certificate, each part PEM."""

    ca_pem: bytes
    ca_key_pem: bytes
    cert_pem: bytes
    key_pem: bytes

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> "Bundle | None":
        """The bundle in these named parts; None where one is missing."""
        if not all(files.get(name) for name in FILE_NAMES):
            return None
        return cls(*(files[name] for name in FILE_NAMES))

    def files(self) -> dict[str, bytes]:
        """The parts by name."""
        return dict(zip(FILE_NAMES, (self.ca_pem, self.ca_key_pem, self.cert_pem, self.key_pem), strict=True))

    def not_after(self) -> float:
        """When the serving certificate ends, epoch seconds."""
        return x509.load_pem_x509_certificate(self.cert_pem).not_valid_after_utc.timestamp()


@dataclass(frozen=True, slots=True)
class Renewal:
    """A bundle to use from now on, and why the old one was not good enough."""

    bundle: Bundle
    reason: str


def renewal_of(bundle: Bundle | None, hosts: Sequence[str], *, now_s: float) -> Renewal | None:
    """The renewal that ``bundle`` needs at ``now_s`` (epoch seconds); None if it serves ``hosts`` well for long.

    ``hosts`` are DNS names and IP addresses that clients connect to. Generates keys, so it takes milliseconds.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    if bundle is None:
        return Renewal(_new_bundle(hosts, now), "there is none yet")
    if problem := _authority_problem(bundle, now):
        return Renewal(_new_bundle(hosts, now), problem)
    reasons = []
    newest = x509.load_pem_x509_certificate(bundle.ca_pem)
    if newest.not_valid_after_utc - now < CA_RENEWED_BEFORE_END:
        bundle = _with_new_authority(bundle, now)
        reasons.append(f"the authority ends at {newest.not_valid_after_utc.isoformat()}")
    if problem := _serving_problem(bundle, hosts, now):
        bundle = _with_new_serving(bundle, hosts, now)
        reasons.append(problem)
    return Renewal(bundle, "; ".join(reasons)) if reasons else None


def _authority_problem(bundle: Bundle, now: datetime) -> str:
    try:
        newest = x509.load_pem_x509_certificate(bundle.ca_pem)
        key = serialization.load_pem_private_key(bundle.ca_key_pem, None)
    except (ValueError, TypeError) as error:
        return f"the authority is unreadable: {error}"
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != newest.public_key():
        return "the authority's key does not belong to its certificate"
    if newest.not_valid_after_utc <= now:
        return f"the authority ended at {newest.not_valid_after_utc.isoformat()}"
    return ""


def _serving_problem(bundle: Bundle, hosts: Sequence[str], now: datetime) -> str:
    try:
        certificate = x509.load_pem_x509_certificate(bundle.cert_pem)
        key = serialization.load_pem_private_key(bundle.key_pem, None)
    except (ValueError, TypeError) as error:
        return f"the serving certificate is unreadable: {error}"
    if key.public_key() != certificate.public_key():
        return "the serving key does not belong to its certificate"
    trusted = x509.load_pem_x509_certificates(bundle.ca_pem)
    if not any(_is_issued_by(certificate, ca) and ca.not_valid_after_utc > now for ca in trusted):
        return "the serving certificate is not signed by a valid authority of ours"
    if missing := set(hosts) - _hosts_of(certificate):
        return f"the serving certificate is not for {', '.join(sorted(missing))}"
    if certificate.not_valid_after_utc - now < SERVING_RENEWED_BEFORE_END:
        return f"the serving certificate ends at {certificate.not_valid_after_utc.isoformat()}"
    return ""


def _is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return set(names.get_values_for_type(x509.DNSName)) | {
        str(address) for address in names.get_values_for_type(x509.IPAddress)
    }


def _new_bundle(hosts: Sequence[str], now: datetime) -> Bundle:
    ca_pem, ca_key_pem = _new_authority(now)
    return _with_new_serving(Bundle(ca_pem, ca_key_pem, b"", b""), hosts, now)


def _with_new_authority(bundle: Bundle, now: datetime) -> Bundle:
    ca_pem, ca_key_pem = _new_authority(now)
    still_valid = [
        _pem(ca) for ca in x509.load_pem_x509_certificates(bundle.ca_pem) if ca.not_valid_after_utc > now
    ]
    return replace(bundle, ca_pem=b"".join([ca_pem, *still_valid]), ca_key_pem=ca_key_pem)


def _new_authority(now: datetime) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial in the name keeps two authorities of ours apart for clients that look them up by subject.
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"vreplica-webhook-ca-{serial % 10**9:09d}")])
    certificate = (
        _builder(name, name, key, now, CA_LIFETIME)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate), _key_pem(key)


def _with_new_serving(bundle: Bundle, hosts: Sequence[str], now: datetime) -> Bundle:
    ca = x509.load_pem_x509_certificate(bundle.ca_pem)
    ca_key = serialization.load_pem_private_key(bundle.ca_key_pem, None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is of another kind than ours")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vreplica-webhook")])
    certificate = (
        _builder(name, ca.subject, key, now, SERVING_LIFETIME)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return replace(bundle, cert_pem=_pem(certificate), key_pem=_key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
