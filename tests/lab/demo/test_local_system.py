"""The whole system of ``vreplica run``: it ends as a real one does, each part while what it needs
is still there.
"""

import logging
import os
import socket
from pathlib import Path

import pytest

from extender.kube.api import LEASES
from extender.lab.demo.local import LocalSystem
from extender.lab.demo.story import Census, Story
from extender.model.names import LEASE_NAME, OWN_NAMESPACE
from extender.model.reading import text

pytestmark = pytest.mark.timeout(60)
LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_at_its_end_the_service_gives_its_lease_up_and_nobody_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    async with LocalSystem(seed=1, directory=tmp_path) as system:
        held = await system.local.cluster.get(LEASES, OWN_NAMESPACE, LEASE_NAME)
        assert text(held, "spec", "holderIdentity") == system.running.identity
    given_up = await system.local.cluster.get(LEASES, OWN_NAMESPACE, LEASE_NAME)
    assert text(given_up, "spec", "holderIdentity") == ""
    assert [record.getMessage() for record in caplog.records] == []


def listening() -> dict[str, list[str]]:
    """Addresses on which this process listens, as /proc/net has them, by family."""
    inodes = {
        link.partition("[")[2].rstrip("]")
        for fd in os.listdir("/proc/self/fd")
        if (link := _link(f"/proc/self/fd/{fd}")).startswith("socket:")
    }
    found: dict[str, list[str]] = {}
    for family, name in (("IPv4", "tcp"), ("IPv6", "tcp6")):
        rows = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        found[family] = [row[1] for row in rows if row[3] == LISTEN and row[9] in inodes]
    return found


def _link(name: str) -> str:
    try:
        return os.readlink(name)
    except FileNotFoundError:  # the directory's own, gone by now
        return ""


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_on_an_ipv6_loopback_alone_pods_are_stamped_bound_and_filled(tmp_path: Path):
    """The whole way: client, webhook with its certificate for ::1, kube-scheduler's calls of the
    extender.
    """
    before = listening()["IPv4"]
    async with LocalSystem(seed=1, directory=tmp_path, host="::1") as system:
        assert listening()["IPv4"] == before, "nothing of ours listens on IPv4"
        assert listening()["IPv6"]
        census = Census()
        system.local.spawn(census.follow(system.local.cluster), "census")
        story = Story(system, census, lambda _line: None)
        await story.play()
        assert census.placed == census.wanted > 0
        assert system.running.verbs.binds > 0
        assert system.running.verbs.bind_errors == 0
