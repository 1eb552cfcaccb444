"""A write that the API server forbids is told by name, wherever somebody may look for it, and made
as soon as it may be.
"""

import logging

import pytest

from extender.kube.api import Forbidden
from tests.support.builders import NS
from tests.support.service import TENANT, a_world, until

pytestmark = pytest.mark.looptime

NO_ROLE = 'pods "dispatcher-0" is forbidden: User "x" cannot patch resource "pods"\nin API group ""'


def forbidden() -> Forbidden:
    return Forbidden(403, "Forbidden", NO_ROLE)


async def test_a_ledger_that_may_not_be_written_is_the_reason_and_not_a_lack_of_slots(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    world = await a_world(0)
    fault = world.api.fail("patch", "pods", before=forbidden(), times=3)
    await world.vpod("a", 3)
    async with world.serving() as service:
        await until(world.condition, ("False", "WriteRefused"), timeout_s=5)
        message = (await world.conditions())["Scheduled"]["message"]
        assert "3 of 3 vreplicas are not written yet" in message
        assert f"the ledger of pod {NS}/dispatcher-0 may not be written" in message
        assert "\n" not in message
        # The role is given back, and the backoff ends.
        await until(world.condition, ("True", "AllPlaced"), timeout_s=30)
        assert await world.ledger(0) == {"tenant/a": 3}
        events = await world.events("WriteRefused")
        regarding = {
            (e["regarding"]["kind"], e["regarding"]["namespace"], e["regarding"]["name"])
            for e in events
        }
        assert regarding == {("Pod", NS, "dispatcher-0"), ("VPod", TENANT, "a")}
        for event in events:
            assert event["type"] == "Warning"
            assert "cannot patch resource" in event["note"]
            assert "ServiceAccount" in event["note"]
            assert "\n" not in event["note"]
        metrics = service.metrics.render().decode()
        assert 'vreplica_scheduler_refusals_total{reason="WriteRefused"} 3.0' in metrics
    told = [
        r
        for r in caplog.records
        if r.levelno == logging.WARNING and "WriteRefused" in r.getMessage()
    ]
    assert len(told) == 3
    assert fault.times == 0
    await world.check()


async def test_a_status_that_may_not_be_written_is_told_on_its_vpod(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    world = await a_world(0)
    world.api.fail("patch", "vpods/status", before=forbidden(), times=2)
    await world.vpod("a", 3)
    async with world.serving():
        await until(world.condition, ("True", "AllPlaced"), timeout_s=30)
        (event,) = await world.events("WriteRefused")
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("VPod", "a")
        assert "the status of VPod tenant/a may not be written" in event["note"]
        assert event["series"]["count"] == 2
    assert "the status of VPod tenant/a" in caplog.text
