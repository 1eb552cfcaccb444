"""How one authority replaces another: what a stored bundle still needs, as a table of steps. Pure.

    ca.crt        the authorities to trust: the caBundle of the webhook configurations, unchanged
    ca.key        key of the authority that signs: the CURRENT one
    next-ca.key   key of the authority that will sign: the NEXT one, in ca.crt since it was made
    tls.crt       serving certificate, signed by one of the authorities
    tls.key       its key
    replaced.crt  the serving certificate that the last change of authority replaced

The keys tell which certificates of ca.crt are the CURRENT and the NEXT one. Others are PREVIOUS.

      made             published everywhere            its last certificate has ended
        │                for a while                                │
        ▼                     │                                     ▼
      NEXT ──────────────► CURRENT ───────────► PREVIOUS ────────► gone
        only trusted     signs   (the next        only trusted
                                  one signs)

There is always a next authority, and it is trusted long before it signs. So nobody has to switch at
the same moment: a replica that still serves the old certificate and an API server that has read an
old caBundle both go on. This also holds for changes that nobody planned, such as a lost key.

``next_step`` returns the first row that holds. It is called again on the result until no row holds.
"can sign": its certificate and key are there and valid. "usable": a client that trusts ca.crt
accepts it.

    row  serving certificate  current         next                 step
    1    unusable             can sign        -                    SIGN     by the current one
    2    unusable             cannot sign     can sign             PROMOTE  even if unpublished:
                                                                            nothing else is left
    3    unusable             cannot sign     cannot sign          RESTART  a new authority, which
                                                                            nobody trusts yet
    4    usable               -               absent               PREPARE  a next one
    5    usable               cannot or ends  published            PROMOTE
    6    usable               can, for long   has waited for long  PREPARE  a fresh next one
    7    usable, ends         can sign        -                    SIGN     by the current one
    8    usable               -               -                    TIDY     authorities that nobody
                                                                            needs any more, junk

Rows 2 and 3 repair damage. From row 4 on nothing is urgent, and at every step ca.crt has the
authority of each certificate that any replica may still serve. Certificates are valid from
``CLOCK_SKEW`` before they were made, and are renewed weeks before they end, so clocks may differ by
an hour.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509

from webhook.x509 import (
    AUTHORITY_LIFETIME,
    CLOCK_SKEW,
    Pair,
    certificates_in,
    fingerprint,
    first_certificate_in,
    is_valid,
    issuer_of,
    new_authority,
    new_serving,
    pem_of,
    serving_problem,
    signer,
)

SERVING_RENEWED_BEFORE_END: Final = timedelta(days=30)
AUTHORITY_RENEWED_BEFORE_END: Final = timedelta(days=180)
"""Twice a serving certificate's life, so that no authority's end ever shortens one."""
NEXT_AGE_MAX: Final = AUTHORITY_LIFETIME / 2 - AUTHORITY_RENEWED_BEFORE_END
"""How long a next authority may wait. When it begins to sign, it still has a year until it is
replaced.
"""
JITTER: Final = 0.1
"""A replica may renew earlier than it must, by up to this fraction of the time before the end. So
chance decides which replica renews.
"""
STEPS_MAX: Final = 8
"""Most steps that a replica stores to reach a good bundle. If they are not enough, somebody else
writes it too.
"""

FILE_NAMES: Final = ("ca.crt", "ca.key", "next-ca.key", "tls.crt", "tls.key", "replaced.crt")
"""Names of the parts, as files in a directory and as keys in a Secret."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is stored, each part PEM or b"". The content is not checked."""

    ca_pem: bytes = b""
    ca_key_pem: bytes = b""
    next_key_pem: bytes = b""
    cert_pem: bytes = b""
    key_pem: bytes = b""
    replaced_pem: bytes = b""

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> "Bundle | None":
        """Return the bundle in these named parts; None if all are absent or empty."""
        parts = [files.get(name, b"") for name in FILE_NAMES]
        return cls(*parts) if any(parts) else None

    def files(self) -> dict[str, bytes]:
        """Return the parts by name. Absent ones are empty."""
        parts = (
            self.ca_pem,
            self.ca_key_pem,
            self.next_key_pem,
            self.cert_pem,
            self.key_pem,
            self.replaced_pem,
        )
        return dict(zip(FILE_NAMES, parts, strict=True))

    @property
    def serving(self) -> Pair:
        """Serving certificate and key."""
        return Pair(self.cert_pem, self.key_pem)

    def expiry(self) -> dict[str, float]:
        """When the readable parts in use end, in epoch seconds: ``serving`` and ``authority``."""
        in_use = {
            "serving": first_certificate_in(self.cert_pem),
            "authority": signer(certificates_in(self.ca_pem), self.ca_key_pem),
        }
        return {
            name: each.not_valid_after_utc.timestamp()
            for name, each in in_use.items()
            if each is not None
        }


class StepName(StrEnum):
    """The steps of the table."""

    SIGN = "sign"
    PROMOTE = "promote"
    RESTART = "restart"
    PREPARE = "prepare"
    TIDY = "tidy"


@dataclass(frozen=True, slots=True)
class Step:
    """A bundle to store, and why the old one was not good enough."""

    name: StepName
    bundle: Bundle
    reason: str


def next_step(
    bundle: Bundle | None,
    hosts: Sequence[str],
    *,
    now_s: float,
    published: Collection[bytes] = (),
    early: float = 0.0,
) -> Step | None:
    """Return what ``bundle`` needs at ``now_s`` (epoch seconds); None if it will serve ``hosts``
    well for long.

    ``hosts`` are DNS names and IP addresses that clients connect to. ``published`` are fingerprints
    of authorities that every API server has had in its caBundle for long enough. ``early`` is this
    replica's share of ``JITTER``, 0 to 1. This function generates keys, which takes milliseconds.
    """
    return _Rotation(
        bundle or Bundle(),
        hosts,
        datetime.fromtimestamp(now_s, UTC),
        published,
        1.0 + JITTER * early,
    ).step()


def is_usable(bundle: Bundle, hosts: Sequence[str], *, now_s: float) -> bool:
    """Whether a client that trusts the bundle's authorities accepts its serving certificate for
    ``hosts``.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    return not serving_problem(bundle.serving, certificates_in(bundle.ca_pem), hosts, now)


class _Rotation:
    """One look at a bundle. ``hurry``: a factor of the times before an end, 1 or a little more."""

    def __init__(
        self,
        bundle: Bundle,
        hosts: Sequence[str],
        now: datetime,
        published: Collection[bytes],
        hurry: float,
    ) -> None:
        self._bundle = bundle
        self._hosts = hosts
        self._now = now
        self._published = published
        self._hurry = hurry
        self._trusted = certificates_in(bundle.ca_pem)
        valid = [each for each in self._trusted if is_valid(each, now)]
        self._current = signer(valid, bundle.ca_key_pem)
        self._next = signer([each for each in valid if each != self._current], bundle.next_key_pem)

    def step(self) -> Step | None:
        """Return the step of the first row of the table that holds."""
        problem = serving_problem(self._bundle.serving, self._trusted, self._hosts, self._now)
        if problem:
            return self._repair(problem)
        if self._next is None:
            return self._prepare("there is no next authority")
        reason = self._current_problem()
        if reason and fingerprint(self._next) in self._published:
            return self._promote(reason)
        if (
            not reason
            and self._next.not_valid_after_utc - self._now < AUTHORITY_LIFETIME - NEXT_AGE_MAX
        ):
            return self._prepare("the next authority has waited for long")
        end = certificates_in(self._bundle.cert_pem)[0].not_valid_after_utc
        if self._ends_soon(end, SERVING_RENEWED_BEFORE_END) and self._could_sign_beyond(end):
            return self._sign(f"the serving certificate ends at {end.isoformat()}")
        return self._tidy()

    def _repair(self, problem: str) -> Step:
        if self._current is not None:
            return self._sign(problem)
        if self._next is not None:
            return self._promote(f"{problem}, and the authority cannot sign")
        return self._restart(problem)

    def _current_problem(self) -> str:
        if self._current is None:
            return "the authority is not there, or not valid, or its key is not its"
        end = self._current.not_valid_after_utc
        return (
            f"the authority ends at {end.isoformat()}"
            if self._ends_soon(end, AUTHORITY_RENEWED_BEFORE_END)
            else ""
        )

    def _ends_soon(self, end: datetime, before: timedelta) -> bool:
        return end - self._now < before * self._hurry

    def _could_sign_beyond(self, end: datetime) -> bool:
        return self._current is not None and self._current.not_valid_after_utc > end

    # -- the steps ---------------------------------------------------------------------------------

    def _sign(self, reason: str) -> Step:
        assert self._current is not None
        bundle = self._signed(self._bundle, self._current)
        return Step(StepName.SIGN, bundle, reason)

    def _promote(self, reason: str) -> Step:
        assert self._next is not None
        promoted = replace(self._bundle, ca_key_pem=self._bundle.next_key_pem, next_key_pem=b"")
        return Step(StepName.PROMOTE, self._signed(promoted, self._next), reason)

    def _restart(self, reason: str) -> Step:
        authority = new_authority(self._now)
        current = certificates_in(authority.cert_pem)[0]
        # Authorities of what other replicas serve stay trusted, as far as they can be read.
        begun = replace(
            self._bundle,
            ca_pem=_joined([current, *self._still_trusted()]),
            ca_key_pem=authority.key_pem,
            next_key_pem=b"",
        )
        return Step(StepName.RESTART, self._signed(begun, current), reason)

    def _prepare(self, reason: str) -> Step:
        authority = new_authority(self._now)
        coming = certificates_in(authority.cert_pem)
        kept = [
            each for each in self._still_trusted() if each != self._next
        ]  # it has signed nothing
        head = [each for each in kept if each == self._current]
        tail = [each for each in kept if each != self._current]
        bundle = replace(
            self._bundle, ca_pem=_joined([*head, *coming, *tail]), next_key_pem=authority.key_pem
        )
        return Step(StepName.PREPARE, bundle, reason)

    def _tidy(self) -> Step | None:
        kept = self._still_trusted()
        if _joined(kept) == self._bundle.ca_pem:
            return None
        gone = ", ".join(
            sorted(
                each.subject.rfc4514_string()[:100] for each in self._trusted if each not in kept
            )
        )
        tidy = replace(self._bundle, ca_pem=_joined(kept))
        return Step(
            StepName.TIDY, tidy, f"no longer needed in ca.crt: {gone or 'what is no certificate'}"
        )

    def _signed(self, bundle: Bundle, authority: x509.Certificate) -> Bundle:
        """Add a new serving certificate of ``authority``. If it replaces one of another authority,
        that one is remembered until it ends.
        """
        serving = new_serving(authority, bundle.ca_key_pem, self._hosts, self._now)
        others = [each for each in certificates_in(bundle.ca_pem) if each != authority]
        return replace(
            bundle,
            ca_pem=_joined([authority, *others]),
            cert_pem=serving.cert_pem,
            key_pem=serving.key_pem,
            replaced_pem=self._last_replaced(authority),
        )

    def _last_replaced(self, authority: x509.Certificate) -> bytes:
        """Return the certificate of another authority that ends last among those that may still be
        served.
        """
        before = certificates_in(self._bundle.replaced_pem)[:1]
        served, issuer = self._served()
        if served is None or issuer is None:
            # What is served of the current authority cannot be known. Without a record, all
            # authorities are trusted until they end.
            before = before if authority == self._current else []
        elif issuer != authority:
            before = [*before, served]
        return pem_of(max(before, key=lambda each: each.not_valid_after_utc)) if before else b""

    def _served(self) -> tuple[x509.Certificate | None, x509.Certificate | None]:
        """Return the stored serving certificate, and which of our authorities signed it."""
        served = first_certificate_in(self._bundle.cert_pem)
        return served, None if served is None else issuer_of(served, self._trusted)

    def _still_trusted(self) -> list[x509.Certificate]:
        """Return the authorities that are still needed: the current, the next, the serving
        certificate's, and those of certificates that may still be served.
        """
        _, issuer = self._served()
        replaced = first_certificate_in(self._bundle.replaced_pem)
        all_ended = replaced is not None and self._has_ended(replaced)
        return [
            each
            for each in self._trusted
            if each in (self._current, self._next, issuer)
            or not (all_ended or self._has_ended(each))
        ]

    def _has_ended(self, certificate: x509.Certificate) -> bool:
        return certificate.not_valid_after_utc + CLOCK_SKEW < self._now


def _joined(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(map(pem_of, certificates))
