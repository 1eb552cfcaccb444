"""What ``vreplica adapter-kit URL`` takes for a URL, and where it listens then."""

import pytest

from extender.lab.adapter_kit.address import addresses_from
from extender.model.errors import VReplicaError


@pytest.mark.parametrize(
    ("url", "first", "second"),
    [
        ("https://127.0.0.1:8443", "https://127.0.0.1:8443", "https://127.0.0.1:8444"),
        ("https://Kit.lab.example:1/", "https://kit.lab.example:1", "https://kit.lab.example:2"),
        ("HTTPS://[::1]:65534", "https://[::1]:65534", "https://[::1]:65535"),
    ],
)
def test_the_second_replica_has_the_next_port(url, first, second):
    assert [address.url for address in addresses_from(url)] == [first, second]


@pytest.mark.parametrize(
    ("url", "interface"),
    [
        ("https://127.0.0.1:8443", "127.0.0.1"),
        ("https://[::1]:8443", "::1"),
        ("https://localhost:8443", "localhost"),
        ("https://host.docker.internal:8443", None),
    ],
)
def test_a_name_is_listened_for_on_all_interfaces_as_it_may_be_any_way_to_this_machine(
    url, interface
):
    assert addresses_from(url)[0].interface == interface


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:8443", "https:// only"),
        ("https://127.0.0.1:0", "from 1 to 65534"),
        ("https://127.0.0.1:65535", "from 1 to 65534"),
        ("https://127.0.0.1", "from 1 to 65534"),
        ("https://127.0.0.1:x", "not a URL"),
        ("https://127.0.0.1:70000", "not a URL"),
        ("https://[::1:8443", "not a URL"),
        ("https://:8443", "neither a name nor an IP address"),
        ("https://a..b:8443", "neither a name nor an IP address"),
        ("https://kit_1*:8443", "neither a name nor an IP address"),
        ("https://[fe80::1%25eth0]:8443", "neither a name nor an IP address"),
        ("https://0.0.0.0:8443", "can connect to"),
        ("https://[::]:8443", "can connect to"),
        ("https://me@127.0.0.1:8443", "and no more"),
        ("https://127.0.0.1:8443/v1/assignment", "and no more"),
        ("https://127.0.0.1:8443?watch=true", "and no more"),
    ],
)
def test_a_url_that_no_adapter_could_use_is_refused_with_the_reason(url, problem):
    with pytest.raises(VReplicaError) as told:
        addresses_from(url)
    assert problem in str(told.value)
    assert url in str(told.value)
