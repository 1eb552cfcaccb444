from dataclasses import replace

import pytest
from cryptography import x509

from webhook.x509 import Bundle, Renewal, renewal_of

NOW = 1_800_000_000.0
DAY = 86_400.0
HOSTS = ("vreplica-webhook.vreplica-system.svc", "127.0.0.1")


def renewed(bundle: Bundle | None, days: float = 0.0) -> Renewal:
    """The renewal that is due ``days`` after NOW."""
    renewal = renewal_of(bundle, HOSTS, now_s=NOW + days * DAY)
    assert renewal is not None
    return renewal


FRESH = renewed(None).bundle
OTHER = renewed(None).bundle


def authorities(bundle: Bundle) -> list[bytes]:
    return [bytes(str(ca.serial_number), "ascii") for ca in x509.load_pem_x509_certificates(bundle.ca_pem)]


def test_a_fresh_bundle_is_good_and_for_every_host():
    assert renewal_of(FRESH, HOSTS, now_s=NOW) is None
    names = x509.load_pem_x509_certificate(FRESH.cert_pem).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(ip) for ip in names.value.get_values_for_type(x509.IPAddress)] == [HOSTS[1]]
    assert FRESH.not_after() == NOW + 90 * DAY


def test_parts_travel_by_name():
    assert Bundle.from_files(FRESH.files()) == FRESH
    assert Bundle.from_files({**FRESH.files(), "ca.key": b""}) is None


@pytest.mark.parametrize(
    ("bundle", "days", "hosts", "reason"),
    [
        pytest.param(FRESH, 59, HOSTS, None, id="31 days left"),
        pytest.param(FRESH, 61, HOSTS, "ends at", id="29 days left"),
        pytest.param(FRESH, 200, HOSTS, "ends at", id="expired"),
        pytest.param(FRESH, 0, (*HOSTS, "10.0.0.1"), "not for 10.0.0.1", id="a host more"),
        pytest.param(FRESH, 0, HOSTS[:1], None, id="a host less"),
        pytest.param(
            replace(FRESH, key_pem=OTHER.key_pem), 0, HOSTS, "key does not belong", id="another key"
        ),
        pytest.param(replace(FRESH, cert_pem=b"junk"), 0, HOSTS, "unreadable", id="junk certificate"),
        pytest.param(
            replace(FRESH, cert_pem=OTHER.cert_pem, key_pem=OTHER.key_pem),
            0,
            HOSTS,
            "not signed",
            id="foreign certificate",
        ),
    ],
)
def test_the_serving_certificate_is_renewed_under_the_same_authority(bundle, days, hosts, reason):
    now_s = NOW + days * DAY
    renewal = renewal_of(bundle, hosts, now_s=now_s)
    assert (renewal is None) is (reason is None)
    if renewal is not None and reason is not None:
        assert reason in renewal.reason
        assert renewal.bundle.ca_pem == FRESH.ca_pem
        assert renewal_of(renewal.bundle, hosts, now_s=now_s) is None


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        pytest.param(replace(FRESH, ca_pem=b"junk"), "unreadable", id="junk authority"),
        pytest.param(replace(FRESH, ca_key_pem=b"junk"), "unreadable", id="junk key"),
        pytest.param(replace(FRESH, ca_key_pem=OTHER.ca_key_pem), "does not belong", id="another key"),
    ],
)
def test_a_broken_authority_is_replaced_as_a_whole(bundle, reason):
    renewal = renewed(bundle)
    assert reason in renewal.reason
    assert renewal_of(renewal.bundle, HOSTS, now_s=NOW) is None


def test_a_new_authority_is_first_only_trusted_and_signs_at_the_next_renewal():
    day = 3650 - 364
    old = renewed(FRESH, day - 10).bundle  # its serving certificate is 10 days old
    assert authorities(old) == authorities(FRESH)
    both = renewed(old, day)
    assert "the authority ends" in both.reason
    assert len(authorities(both.bundle)) == 2
    assert both.bundle.cert_pem == old.cert_pem
    assert renewal_of(both.bundle, HOSTS, now_s=NOW + day * DAY) is None
    later = renewed(both.bundle, day + 60).bundle
    signed_by = x509.load_pem_x509_certificate(later.cert_pem).issuer
    assert signed_by == x509.load_pem_x509_certificates(both.bundle.ca_pem)[0].subject
    assert authorities(later) == authorities(both.bundle)


def test_an_authority_that_ended_long_ago_is_replaced():
    renewal = renewed(FRESH, 4000)
    assert "ended" in renewal.reason
    assert len(authorities(renewal.bundle)) == 1
