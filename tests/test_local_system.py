"""The whole system of ``vreplica run``: it ends as a real one does, each part while what it needs is still there."""

import logging
from pathlib import Path

import pytest

from extender.core.names import LEASE_NAME, OWN_NAMESPACE
from extender.core.reading import text
from extender.demo.local import LocalSystem
from extender.kube.api import LEASES

pytestmark = pytest.mark.timeout(60)


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
