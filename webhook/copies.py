"""``Copies``: in place of ``Registration``, for a server whose clients have copies of ``ca.crt``.

Nobody can see these copies. An authority may sign once it has been in ``ca.crt`` for
``COPIED_WITHIN``. So a copy that is renewed that often always has the authority that signs. A next
authority is made long before it is needed, so this delays nothing.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from webhook.certs import Certificates
from webhook.rotation import Bundle
from webhook.x509 import CLOCK_SKEW, certificates_in, fingerprint

COPIED_WITHIN: Final = timedelta(days=60)
"""How old a client's copy may be."""


class Copies:
    """Keeps certificates without a registration. ``now``: wall-clock time, epoch seconds."""

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._bundle: Bundle | None = None

    def published(self) -> frozenset[bytes]:
        """Return the fingerprints of the authorities that may sign."""
        if self._bundle is None:
            return frozenset()
        latest = datetime.fromtimestamp(self._now(), UTC) - COPIED_WITHIN - CLOCK_SKEW
        return frozenset(
            fingerprint(each)
            for each in certificates_in(self._bundle.ca_pem)
            if each.not_valid_before_utc <= latest
        )

    async def reconcile(self, certificates: Certificates) -> list[str]:
        """Renew what is due. Return [], as there is nothing else that could be wrong. Raises
        ApiError, CertificateError, OSError.
        """
        self._bundle = await certificates.ensure(self.published())
        return []
