"""Bundles at a moment, as the rotation makes them, and what a verifying client makes of them."""

from collections.abc import Collection
from functools import lru_cache

from cryptography import x509

from webhook.rotation import STEPS_MAX, Bundle, Step, StepName, next_step
from webhook.x509 import certificates_in, fingerprint, issuer_of

NOW = 1_800_000_000.0
DAY = 86_400.0
HOSTS = ("vreplica-webhook.vreplica-system.svc", "127.0.0.1")


def fingerprints(pem: bytes) -> frozenset[bytes]:
    """Of all certificates in it."""
    return frozenset(map(fingerprint, certificates_in(pem)))


def step_of(
    bundle: Bundle | None,
    days: float = 0.0,
    *,
    published: bool = True,
    hosts: tuple[str, ...] = HOSTS,
) -> Step | None:
    """The next step ``days`` after NOW; ``published``: whether every authority of the bundle has
    been for long.
    """
    seen: Collection[bytes] = fingerprints(bundle.ca_pem) if bundle and published else ()
    return next_step(bundle, hosts, now_s=NOW + days * DAY, published=seen)


def steps_from(
    bundle: Bundle | None, days: float = 0.0, *, published: bool = True
) -> tuple[list[StepName], Bundle]:
    """All steps until none is left, and the bundle after them."""
    names: list[StepName] = []
    while (step := step_of(bundle, days, published=published)) is not None:
        names.append(step.name)
        bundle = step.bundle
        assert len(names) <= STEPS_MAX, names
    assert bundle is not None
    return names, bundle


def is_verified(cert_pem: bytes, ca_pem: bytes, now_s: float, skew_s: float = 0.0) -> bool:
    """Whether a client whose clock is off by so much, and that trusts ``ca_pem``, takes that
    certificate for HOSTS[0].
    """
    begin_s, end_s = _verified_between(cert_pem, ca_pem)
    return begin_s <= now_s + skew_s < end_s


@lru_cache(maxsize=4096)
def _verified_between(cert_pem: bytes, ca_pem: bytes) -> tuple[float, float]:
    (certificate,) = certificates_in(cert_pem)
    issuer = issuer_of(certificate, certificates_in(ca_pem))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if issuer is None or HOSTS[0] not in names.get_values_for_type(x509.DNSName):
        return 0.0, 0.0
    both = (certificate, issuer)
    return (
        max(each.not_valid_before_utc.timestamp() for each in both),
        min(each.not_valid_after_utc.timestamp() for each in both),
    )
