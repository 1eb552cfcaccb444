"""Who signs the certificate of the kit's replicas."""

import ssl
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from webhook.x509 import Pair, certificates_in, new_authority, new_serving


class Authority:
    """Makes one certificate for all replicas of a run. ``ca_pem``: who signed it."""

    def __init__(self, host: str = "127.0.0.1", pair: Pair | None = None) -> None:
        """``host``: of the replicas. ``pair``: of an authority that exists."""
        pair = pair or new_authority(datetime.now(UTC))
        self.ca_pem = pair.cert_pem
        self._host, self._pair = host, pair
        self.context = _context(pair, host)

    def wrong_contexts(self) -> list[tuple[str, ssl.SSLContext]]:
        """Servers that an adapter must not trust: what is wrong with the certificate, and it."""
        return [
            ("a certificate of another CA", _context(new_authority(datetime.now(UTC)), self._host)),
            ("a certificate for another name", _context(self._pair, "other.example")),
        ]


def _context(pair: Pair, host: str) -> ssl.SSLContext:
    """A server with a certificate for ``host``, signed by ``pair``."""
    signer = certificates_in(pair.cert_pem)[0]
    serving = new_serving(signer, pair.key_pem, [host], datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Only this user may enter the folder, and the context reads nothing but files.
    with tempfile.TemporaryDirectory(prefix="vreplica-adapter-kit-") as name:
        cert, key = Path(name) / "serving.crt", Path(name) / "serving.key"
        cert.write_bytes(serving.cert_pem)
        key.write_bytes(serving.key_pem)
        context.load_cert_chain(cert, key)
    return context
