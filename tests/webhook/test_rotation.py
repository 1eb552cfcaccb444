"""The table of steps by which one authority takes the place of another, row by row."""

import base64
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings, strategies as st

from tests.webhook.authorities import (
    DAY,
    HOSTS,
    NOW,
    fingerprints,
    is_verified,
    step_of,
    steps_from,
)
from webhook.rotation import FILE_NAMES, Bundle, StepName, is_usable, next_step
from webhook.x509 import (
    AUTHORITIES_MAX,
    Pair,
    certificates_in,
    fingerprint,
    issuer_of,
    new_authority,
    served_form,
    serving_problem,
    signer,
)

SIGN, PROMOTE, RESTART, PREPARE, TIDY = StepName

FRESH = steps_from(None)[1]
OTHER = steps_from(None)[1]
JUNK = b"junk"


def current_of(bundle: Bundle) -> x509.Certificate | None:
    return signer(certificates_in(bundle.ca_pem), bundle.ca_key_pem)


def next_of(bundle: Bundle) -> x509.Certificate | None:
    return signer(certificates_in(bundle.ca_pem), bundle.next_key_pem)


def trusts(bundle: Bundle, cert_pem: bytes, days: float = 0.0) -> bool:
    return is_verified(cert_pem, bundle.ca_pem, NOW + days * DAY)


def test_from_nothing_come_two_authorities_and_a_certificate_for_every_host():
    assert steps_from(None)[0] == [RESTART, PREPARE]
    current, coming = certificates_in(FRESH.ca_pem)
    assert (current_of(FRESH), next_of(FRESH)) == (current, coming)
    (serving,) = certificates_in(FRESH.cert_pem)
    assert issuer_of(serving, [current, coming]) == current
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [HOSTS[1]]
    assert FRESH.expiry() == {"serving": NOW + 90 * DAY, "authority": NOW + 730 * DAY}


def test_parts_travel_by_name():
    assert Bundle.from_files(FRESH.files()) == FRESH
    assert tuple(FRESH.files()) == FILE_NAMES
    assert Bundle.from_files({"ca.crt": FRESH.ca_pem}) == Bundle(ca_pem=FRESH.ca_pem)
    assert Bundle.from_files({"ca.crt": b"", "note": b"x"}) is None


@pytest.mark.parametrize(
    ("change", "days", "steps"),
    [
        pytest.param({}, 0, [], id="fresh"),
        pytest.param({}, 59, [], id="31 days left"),
        pytest.param({}, 61, [SIGN], id="29 days left"),
        pytest.param({}, 100, [SIGN], id="the certificate has ended"),
        pytest.param({"key_pem": OTHER.key_pem}, 0, [SIGN], id="another's key"),
        pytest.param({"key_pem": b""}, 0, [SIGN], id="no key"),
        pytest.param({"cert_pem": JUNK}, 0, [SIGN], id="junk for a certificate"),
        pytest.param(
            {"cert_pem": OTHER.cert_pem, "key_pem": OTHER.key_pem}, 0, [SIGN], id="another's"
        ),
        pytest.param({"ca_key_pem": JUNK}, 0, [PROMOTE, PREPARE], id="the authority's key is lost"),
        pytest.param(
            {"ca_key_pem": OTHER.ca_key_pem}, 0, [PROMOTE, PREPARE], id="another authority's key"
        ),
        pytest.param(
            {"ca_key_pem": JUNK, "key_pem": b""}, 0, [PROMOTE, PREPARE], id="both keys are lost"
        ),
        pytest.param({"next_key_pem": JUNK}, 0, [PREPARE], id="the next one's key is lost"),
        pytest.param({"ca_pem": JUNK}, 0, [RESTART, PREPARE], id="junk for authorities"),
        pytest.param(
            {"ca_key_pem": b"", "next_key_pem": b"", "key_pem": b""},
            0,
            [RESTART, PREPARE],
            id="no keys",
        ),
        pytest.param({"ca_pem": FRESH.ca_pem + JUNK}, 0, [TIDY], id="junk behind the authorities"),
        pytest.param({}, 200, [SIGN, PREPARE], id="the next one has waited for half a year"),
        pytest.param({}, 740, [RESTART, PREPARE], id="nobody has looked for two years"),
    ],
)
def test_what_is_not_right_is_put_right_by_the_steps_of_the_table(
    change: dict[str, bytes], days: float, steps: list[StepName]
):
    names, bundle = steps_from(replace(FRESH, **change), days)
    assert names == steps
    assert is_usable(bundle, HOSTS, now_s=NOW + days * DAY)
    assert is_verified(bundle.cert_pem, bundle.ca_pem, NOW + days * DAY)
    assert current_of(bundle) is not None
    assert next_of(bundle) not in {None, current_of(bundle)}
    assert (
        fingerprints(bundle.ca_pem) >= fingerprints(FRESH.ca_pem)
        or days > 100
        or "ca_pem" in change
        or PREPARE in steps
    )


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        pytest.param((*HOSTS, "10.0.0.1"), "not for 10.0.0.1", id="a host more"),
        pytest.param(HOSTS[:1], None, id="a host less"),
    ],
)
def test_a_certificate_is_signed_anew_for_hosts_that_it_is_not_for(
    hosts: tuple[str, ...], reason: str | None
):
    step = step_of(FRESH, hosts=hosts)
    assert (step is None) is (reason is None)
    if step is not None and reason is not None:
        assert step.name is SIGN
        assert reason in step.reason
        assert step.bundle.ca_pem == FRESH.ca_pem
        assert step_of(step.bundle, hosts=hosts) is None


def test_an_authority_signs_only_once_it_has_been_published_for_long():
    without_key = replace(FRESH, ca_key_pem=b"")
    assert step_of(without_key, published=False) is None, "what is served is good: there is time"
    step = step_of(without_key)
    assert step is not None
    assert step.name is PROMOTE
    assert issuer_of(certificates_in(step.bundle.cert_pem)[0], [next_of(FRESH)])  # type: ignore[list-item]


def test_without_time_the_next_authority_signs_at_once():
    step = step_of(replace(FRESH, ca_key_pem=b"", key_pem=b""), published=False)
    assert step is not None
    assert step.name is PROMOTE


def test_the_old_authority_is_trusted_until_the_last_certificate_that_it_signed_has_ended():
    renewed = steps_from(FRESH, 550)[
        1
    ]  # it ends in 180 days, and by then the next one has been made anew
    assert renewed.cert_pem != FRESH.cert_pem
    day = 551
    names, changed = steps_from(renewed, day)
    assert names == [PROMOTE, PREPARE]
    old = fingerprint(current_of(renewed))  # type: ignore[arg-type]
    assert trusts(changed, renewed.cert_pem, day)
    for later in (day + 1, day + 62, day + 89):
        names, changed = steps_from(changed, later)
        assert TIDY not in names
        assert old in fingerprints(changed.ca_pem)
    names, changed = steps_from(changed, day + 90.1)
    assert TIDY in names
    assert old not in fingerprints(changed.ca_pem)
    assert len(certificates_in(changed.ca_pem)) == 2


def test_a_strange_certificate_in_the_serving_ones_place_cuts_no_authoritys_trust_short():
    """Replicas still serve what the current one has signed, and it cannot be known from what is
    stored.
    """
    ended = steps_from(None, -200)[1].cert_pem
    names, bundle = steps_from(replace(FRESH, ca_key_pem=b"", cert_pem=ended))
    assert names == [PROMOTE, PREPARE]
    assert trusts(bundle, FRESH.cert_pem)
    assert trusts(steps_from(bundle, 80)[1], FRESH.cert_pem, 80)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_over_six_years_what_was_served_stays_trusted_and_authorities_are_four_at_most():
    bundle, served = FRESH, [(FRESH.cert_pem, 0)]
    known = dict.fromkeys(fingerprints(FRESH.ca_pem), -365)
    for day in range(10, 6 * 365, 10):
        bundle = steps_from(bundle, day)[1]
        if bundle.cert_pem != served[-1][0]:
            served.append((bundle.cert_pem, day))
        for cert_pem, since in served[-3:]:
            assert day >= since + 90 or trusts(bundle, cert_pem, day), (day, since)
        signs = signer(certificates_in(bundle.ca_pem), bundle.ca_key_pem)
        assert signs is not None
        assert day - known[fingerprint(signs)] >= 170, "it was published long before"
        for each in fingerprints(bundle.ca_pem):
            known.setdefault(each, day)
        assert 2 <= len(certificates_in(bundle.ca_pem)) <= 4
    assert 36 - 3 <= len(served) <= 36 + 8
    assert len(known) > 8


@pytest.mark.parametrize("early", [0.0, 0.5, 1.0])
def test_who_is_to_be_early_renews_up_to_three_days_sooner(early: float):
    due = 60 - 3 * early
    before, after = (
        next_step(FRESH, HOSTS, now_s=NOW + (due + hours / 24) * DAY, early=early)
        for hours in (-1, 1)
    )
    assert before is None
    assert after is not None
    assert after.name is SIGN


def test_a_serving_certificate_never_outlives_its_authority_nor_is_signed_for_nothing():
    # Nobody publishes the next one, so that the old one goes on to its end.
    bundle = FRESH
    for day in range(0, 728, 7):
        names, bundle = steps_from(bundle, day, published=False)
        assert names.count(SIGN) <= 1
    assert bundle.expiry()["serving"] == bundle.expiry()["authority"]
    assert steps_from(bundle, 729, published=False)[0] == []
    assert steps_from(bundle, 731, published=False)[0] == [PROMOTE, PREPARE]


def test_a_bundle_of_the_first_version_goes_on_and_gets_a_next_authority():
    first = replace(FRESH, ca_pem=certificates_in_order(FRESH)[0], next_key_pem=b"")
    names, bundle = steps_from(first)
    assert names == [PREPARE]
    assert bundle.ca_pem.startswith(first.ca_pem)
    assert (bundle.cert_pem, bundle.ca_key_pem) == (first.cert_pem, first.ca_key_pem)


def certificates_in_order(bundle: Bundle) -> list[bytes]:
    return [
        each.public_bytes(serialization.Encoding.PEM) for each in certificates_in(bundle.ca_pem)
    ]


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return _pem(key)


def _pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _encrypted() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize("part", FILE_NAMES)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda: b"", id="empty"),
        pytest.param(lambda: b"\xff\x00" * 50_000, id="binary"),
        pytest.param(
            lambda: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", id="no DER"
        ),
        pytest.param(lambda: b"-----BEGIN CERTIFICATE-----" * 4000, id="beginnings only"),
        pytest.param(
            lambda: b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", id="no key"
        ),
        pytest.param(_rsa_key, id="an RSA key"),
        pytest.param(_encrypted, id="an encrypted key"),
        pytest.param(lambda: FRESH.cert_pem + FRESH.key_pem, id="certificate and key"),
        pytest.param(lambda: FRESH.ca_pem[:-60] + OTHER.ca_pem, id="cut and joined"),
        pytest.param(lambda: OTHER.ca_pem, id="other authorities"),
        pytest.param(
            lambda: b"".join(_authority_pem() for _ in range(30)), id="thirty authorities"
        ),
    ],
)
def test_strange_content_of_any_part_ends_in_a_good_bundle(part: str, content: Callable[[], bytes]):
    bundle = Bundle.from_files({**FRESH.files(), part: content()})
    _, good = steps_from(bundle)
    assert is_verified(good.cert_pem, good.ca_pem, NOW)
    assert len(certificates_in(good.ca_pem)) <= AUTHORITIES_MAX
    assert current_of(good) is not None


def armoured(pem: bytes, der: bytes) -> bytes:
    """With the first and last line of ``pem``."""
    lines = pem.splitlines(keepends=True)
    end = next(line for line in lines if line.startswith(b"-----END"))
    return lines[0] + base64.encodebytes(der) + end


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@settings(max_examples=60, deadline=None)
@given(
    part=st.sampled_from(FILE_NAMES[:-1]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.floats(0.9, 1.0),
)
def test_a_certificate_or_key_with_other_bytes_in_it_ends_in_a_good_bundle(
    part: str, changes: list[tuple[float, int]], cut: float
):
    files = FRESH.files()
    block = files[part].partition(b"-----END")
    der = bytearray(base64.b64decode(b"".join(block[0].splitlines()[1:])))
    for place, byte in changes:
        der[int(place * (len(der) - 1))] = byte
    _, good = steps_from(
        Bundle.from_files({**files, part: armoured(files[part], bytes(der[: int(cut * len(der))]))})
    )
    assert is_verified(good.cert_pem, good.ca_pem, NOW)
    assert current_of(good) is not None
    served_form(good.serving)


def test_a_certificate_with_junk_before_it_is_served_without_the_junk():
    pair = served_form(
        Pair(JUNK + FRESH.ca_pem[:100] + FRESH.cert_pem, JUNK + b"\n" + FRESH.key_pem)
    )
    assert pair == FRESH.serving


def _authority_pem() -> bytes:
    return new_authority(certificates_in(FRESH.ca_pem)[0].not_valid_before_utc).cert_pem


def test_a_key_of_a_length_that_its_kind_does_not_have_is_no_key():
    """The library says InternalError."""
    too_long = (
        b"-----BEGIN PRIVATE KEY-----\n"
        b"MC4CAQAwBQYDK2VxBCIEIPAhYhVHHHp2h7ZLjwBXQ4Jr1SZ3M1U5y8l3VnQyYlBl\n-----END PRIVATE "
        b"KEY-----\n"
    )
    problem = serving_problem(
        Pair(FRESH.cert_pem, too_long),
        certificates_in(FRESH.ca_pem),
        HOSTS,
        certificates_in(FRESH.ca_pem)[0].not_valid_before_utc,
    )
    assert "key" in problem
