"""A throw-away certificate authority for tests of TLS."""

import datetime
import ssl
import warnings
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A throw-away CA that writes certificates for loopback."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.cert = self._sign(name, self.key.public_key(), (), ca=True)
        self.file = folder / f"{name}.crt"
        self.pem = self.cert.public_bytes(serialization.Encoding.PEM)
        self.file.write_bytes(self.pem)

    def issue(self, name: str, *more_names: str) -> tuple[str, str]:
        """Certificate and key file of a client or server; ``more_names``: for its
        subjectAltName.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        cert_file, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert_file.write_bytes(
            self._sign(name, key.public_key(), more_names).public_bytes(serialization.Encoding.PEM)
        )
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(cert_file), str(key_file)

    def _sign(
        self,
        name: str,
        public: ec.EllipticCurvePublicKey,
        more_names: Sequence[str],
        *,
        ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        names = [x509.DNSName(each) for each in ("localhost", *more_names)]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256())


def client_context(trusted: Authority, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(trusted.file))
    context.check_hostname = False
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def only_old_tls(context: ssl.SSLContext) -> ssl.SSLContext:
    """Speaks nothing newer than TLS 1.1, with ciphers that this OpenSSL would not offer by
    itself.
    """
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context
