"""Makes and reads keys and certificates of the webhook's own authority. Does no I/O.

What is read comes from a Secret or a directory, where anybody may have put anything. So reading
does not raise: a certificate that cannot be read counts as absent, and what is read is limited.
"""

import base64
import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME: Final = timedelta(days=730)
SERVING_LIFETIME: Final = timedelta(days=90)
CLOCK_SKEW: Final = timedelta(hours=1)
"""How much the clocks of replicas and API servers may differ. Certificates are valid from this long
before they were made.
"""
AUTHORITIES_MAX: Final = 8
"""Certificates that are read of one bundle. Two are usual, three or four while one replaces
another.
"""
PEM_BYTES_MAX: Final = 64 * 1024
"""Size of one part. Our certificates are shorter than 1 KiB each."""

_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]{1,65536}-----END CERTIFICATE-----"
)
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    InternalError,  # a key whose length is not that of its kind
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    cert_pem: bytes
    key_pem: bytes


def certificates_in(pem: bytes) -> list[x509.Certificate]:
    """Return the readable certificates in order, each once, at most ``AUTHORITIES_MAX``. Other text
    is skipped.
    """
    found: dict[bytes, x509.Certificate] = {}
    for block in _BLOCK.finditer(pem[:PEM_BYTES_MAX]):
        if len(found) == AUTHORITIES_MAX:
            break
        if certificate := _certificate(block.group()):
            found.setdefault(fingerprint(certificate), certificate)
    return list(found.values())


def first_certificate_in(pem: bytes) -> x509.Certificate | None:
    """Return the first readable certificate; None if there is none."""
    return next(iter(certificates_in(pem)), None)


def _certificate(pem: bytes) -> x509.Certificate | None:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        # Other parts are parsed only on access, and may be unreadable.
        certificate.public_key()
        _ = (certificate.subject, certificate.issuer, certificate.extensions)
        _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except _UNREADABLE:
        return None
    return certificate


def key_in(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    """Return the private key; None if it is unreadable or of another kind than ours."""
    try:
        key = serialization.load_pem_private_key(pem[:PEM_BYTES_MAX], None)
    except _UNREADABLE:
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def pem_in_base64(value: object) -> bytes:
    """Return what a field of a Kubernetes object holds in base64; b"" if it holds anything else."""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        return b""


def fingerprint(certificate: x509.Certificate) -> bytes:
    """Return the SHA-256, which identifies a certificate."""
    return certificate.fingerprint(hashes.SHA256())


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether its validity has begun and not ended."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def signer(certificates: Sequence[x509.Certificate], key_pem: bytes) -> x509.Certificate | None:
    """Return the certificate of the authority with this key; None if none may sign."""
    key = key_in(key_pem)
    if key is None:
        return None
    of_key = (each for each in certificates if each.public_key() == key.public_key())
    return next((each for each in of_key if _is_authority(each)), None)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def issuer_of(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    """Return the authority that signed ``certificate``, if any."""
    return next((each for each in authorities if _is_issued_by(certificate, each)), None)


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_UNREADABLE, InvalidSignature):
        return False
    return True


def is_linked(chain_pem: bytes, trusted_pem: bytes) -> bool:
    """Whether the first certificate of a chain leads, over the others, to a trusted one."""
    trusted = certificates_in(trusted_pem)
    between = certificates_in(chain_pem)
    link = between[0] if between else None
    while link is not None:
        if link in trusted or issuer_of(link, trusted):
            return True
        between.remove(link)
        link = issuer_of(link, between)
    return False


def serving_problem(
    pair: Pair, trusted: Sequence[x509.Certificate], hosts: Collection[str], now: datetime
) -> str:
    """Return why a client that trusts these authorities would refuse the certificate for one of
    ``hosts``; "" if it would not.
    """
    certificate = first_certificate_in(pair.cert_pem)
    if certificate is None:
        return "there is no serving certificate that can be read"
    key = key_in(pair.key_pem)
    if key is None or key.public_key() != certificate.public_key():
        return "the serving certificate's key is not there"
    if not is_valid(certificate, now):
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return (
            f"the serving certificate is valid from {begin.isoformat()} to {end.isoformat()} only"
        )
    issuer = issuer_of(certificate, trusted)
    if issuer is None or not is_valid(issuer, now):
        return "the serving certificate is not signed by a valid authority of ours"
    if missing := {str(_general_name(host).value) for host in hosts} - hosts_of(certificate):
        return f"the serving certificate is not for {', '.join(sorted(missing))}"
    return ""


def served_form(pair: Pair) -> Pair:
    """Return the pair without other text, which the TLS library refuses. Raises ValueError."""
    key = key_in(pair.key_pem)
    if key is None:
        raise ValueError("the serving certificate's key cannot be used")
    return Pair(b"".join(map(pem_of, certificates_in(pair.cert_pem))), _key_pem(key))


def hosts_of(certificate: x509.Certificate) -> set[str]:
    """Return the DNS names and IP addresses that it is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return set(names.get_values_for_type(x509.DNSName)) | {
        str(address) for address in names.get_values_for_type(x509.IPAddress)
    }


def new_authority(now: datetime) -> Pair:
    """Return a self-signed authority with a new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Clients look authorities up by subject. The serial in the name keeps two of ours apart.
    serial = x509.random_serial_number()
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"vreplica-webhook-ca-{serial % 10**9:09d}")]
    )
    certificate = (
        _builder(name, name, key, now - CLOCK_SKEW, now + AUTHORITY_LIFETIME)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(pem_of(certificate), _key_pem(key))


def new_serving(
    authority: x509.Certificate, key_pem: bytes, hosts: Sequence[str], now: datetime
) -> Pair:
    """Return a serving certificate with a new key. It ends no later than its authority. Raises
    ValueError if the authority's key cannot be read.
    """
    authority_key = key_in(key_pem)
    if authority_key is None:
        raise ValueError("the authority's key cannot be used")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vreplica-webhook")])
    begin = max(now - CLOCK_SKEW, authority.not_valid_before_utc)
    end = min(now + SERVING_LIFETIME, authority.not_valid_after_utc)
    certificate = (
        _builder(name, authority.subject, key, begin, end)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    return Pair(pem_of(certificate), _key_pem(key))


def pem_of(certificate: x509.Certificate) -> bytes:
    """Return PEM, ending with a line break."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .not_valid_before(begin)
        .not_valid_after(end)
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


def _general_name(host: str) -> x509.DNSName | x509.IPAddress:
    """The host as a certificate names it: an address has one form, and no zone."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
