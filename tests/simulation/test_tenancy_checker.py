"""The checker of tenancy finds limits that are exceeded, and what waits or is taken needlessly,
also by priority.
"""

import pytest

from extender.kube.api import Obj
from tests.simulation.checker_scene import PERSON, REPLICA, CheckerScene, in_virtual_time, later

pytestmark = [pytest.mark.sim, pytest.mark.timeout(60)]

EXCEEDED = ("False", "QuotaExceeded")
PLACED = ("True", "AllPlaced")
PREEMPTED = ("False", "Preempted")
NO_ROOM = ("False", "InsufficientSlots")


class TenancyScene(CheckerScene):
    """A pool of at most 8 slots, of which a tenant without a quota gets 3, and vpods of namespace
    ``t``.
    """

    def __init__(self, *, preempts: bool = False, **tenancy: int) -> None:
        super().__init__()
        sharing: Obj = {"preemption": {"patienceSeconds": 0}} if preempts else {"tenancy": tenancy}
        self.pool(maxPods=2, **sharing)
        self.ledgers: dict[str, dict[str, int]] = {"a-0": {}, "a-1": {}}
        for name in self.ledgers:
            self.pod(name, {})

    def quota(self, limit: int, guarantee: int = 0, namespace: str = "t") -> None:
        metadata = {
            "name": "q",
            "namespace": namespace,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        spec = {"poolRef": {"name": "a"}, "limit": limit, "guarantee": guarantee}
        self.write("vreplicaquotas", "q", {"metadata": metadata, "spec": spec}, PERSON)

    def has(
        self,
        name: str,
        wanted: int,
        placements: dict[str, int],
        condition: tuple[str, str] = PLACED,
        *,
        namespace: str = "t",
        priority: int = 0,
        policy: str = "PreemptLowerPriority",
    ) -> None:
        """The service has placed a vpod: larger ledgers, the status, smaller ledgers."""
        key = f"{namespace}/{name}"
        for pod, count in placements.items():
            if count > self.ledgers[pod].get(key, 0):
                self._write_ledger(pod, key, count)
        status: Obj = {
            "observedGeneration": 1,
            "scheduledVReplicas": sum(placements.values()),
            "placements": [{"podName": pod, "vreplicas": n} for pod, n in placements.items()],
            "readyVReplicas": 0,
            "conditions": [
                {"type": "Scheduled", "status": condition[0], "reason": condition[1]},
                {"type": "Available", "status": "False", "reason": "PodNotReady"},
            ],
        }
        metadata = {"namespace": namespace, "name": name, "uid": name, "generation": 1}
        spec: Obj = {"poolRef": {"name": "a"}, "vreplicas": wanted}
        spec |= {"priority": priority, "preemptionPolicy": policy}
        vpod = {"metadata": metadata, "spec": spec}
        if ("vpods", key) not in self._objects:
            self.write("vpods", key, vpod, PERSON)
        self.write("vpods", key, {**vpod, "status": status}, REPLICA)
        for pod, count in placements.items():
            self._write_ledger(pod, key, count)

    def _write_ledger(self, pod: str, key: str, count: int) -> None:
        self.ledgers[pod] = {**self.ledgers[pod], key: count}
        self.pod(pod, self.ledgers[pod])

    def at_rest(self) -> list[str]:
        """What the checker of tenancy says at rest."""
        return [line for line in self.checkers.differences() if line.startswith("tenancy")]


@in_virtual_time
async def test_a_tenant_within_its_limit_is_right():
    scene = TenancyScene(defaultLimit=3)
    await later(61.0)
    scene.has("v", 9, {"a-0": 3}, EXCEEDED)
    assert scene.found == []
    assert scene.at_rest() == []


@in_virtual_time
async def test_a_tenant_that_gets_more_than_its_limit_is_found():
    scene = TenancyScene(defaultLimit=3)
    await later(61.0)
    scene.has("v", 9, {"a-0": 4}, EXCEEDED)
    (found,) = scene.found
    assert found.startswith("tenancy: replica-1 gave t/v more, and tenant t has 4 of 3 slots")
    assert scene.at_rest() == ["tenancy: tenant t has 4 of 3 slots of a"]


@in_virtual_time
async def test_a_limit_that_was_lowered_lately_is_an_excuse_until_all_is_at_rest():
    scene = TenancyScene(defaultLimit=3)
    scene.quota(5)
    await later(61.0)
    scene.quota(2)
    scene.has("v", 9, {"a-0": 4}, EXCEEDED)
    assert scene.found == []
    assert scene.at_rest() == ["tenancy: tenant t has 4 of 2 slots of a"]


@in_virtual_time
async def test_who_waits_for_quota_although_there_is_some_is_found():
    scene = TenancyScene(defaultLimit=3)
    await later(61.0)
    scene.has("v", 9, {"a-0": 2}, EXCEEDED)
    assert scene.at_rest() == ["tenancy: t/v waits for quota, and its tenant has 2 of 3 slots of a"]
    scene.has("w", 1, {}, ("False", "InsufficientSlots"))
    assert scene.at_rest() == [], "the rest is kept for another vpod"


@in_virtual_time
async def test_a_guarantee_that_is_not_met_while_another_borrows_is_found():
    scene = TenancyScene()
    scene.quota(8, guarantee=4)
    await later(61.0)
    scene.has("greedy", 9, {"a-0": 4, "a-1": 2}, EXCEEDED, namespace="u")
    scene.has("v", 9, {"a-1": 2}, EXCEEDED)
    assert scene.at_rest() == ["tenancy: t/v waits, and its tenant is below its guarantee"]


@in_virtual_time
async def test_what_is_taken_from_who_has_not_too_much_is_found():
    scene = TenancyScene(defaultLimit=3)
    await later(61.0)
    scene.has("v", 3, {"a-0": 3})
    scene.has("v", 3, {"a-0": 2}, EXCEEDED)
    (found,) = scene.found
    assert found.startswith("I4: replica-1 took 1 of t/v (wants 3) off a-0 and told no reason")


@in_virtual_time
async def test_what_is_taken_from_who_has_too_much_needs_no_other_reason():
    scene = TenancyScene()
    await later(61.0)
    scene.has("v", 9, {"a-0": 4, "a-1": 4}, EXCEEDED)
    scene.has("late", 2, {}, ("False", "InsufficientSlots"), namespace="u")
    scene.has("v", 9, {"a-0": 4, "a-1": 2}, EXCEEDED)
    assert scene.found == []


@in_virtual_time
@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("PreemptLowerPriority", ["tenancy: t/high waits, and less important ones have 2 slots"]),
        ("Never", []),
    ],
)
async def test_who_waits_for_what_less_important_ones_have_is_found(policy: str, says: list[str]):
    scene = TenancyScene(preempts=True)
    await later(61.0)
    scene.has("low", 2, {"a-0": 2})
    scene.has("top", 1, {"a-1": 1}, priority=20)
    scene.has("high", 4, {"a-1": 1}, PREEMPTED, priority=10, policy=policy)
    assert scene.at_rest() == says


@in_virtual_time
async def test_who_says_that_it_is_preempted_though_nobody_comes_before_it_is_found():
    scene = TenancyScene(preempts=True)
    await later(61.0)
    scene.has("v", 9, {"a-0": 2}, PREEMPTED)
    scene.has("equal", 2, {"a-1": 2})
    assert scene.at_rest() == ["tenancy: t/v says that it is preempted, and nobody comes before it"]


@in_virtual_time
@pytest.mark.parametrize(
    ("priority", "wanted", "is_right"),
    [(10, 2, True), (0, 0, False), (-10, 2, False)],
    ids=["for a more important one", "an equal one wants nothing", "for a less important one"],
)
async def test_what_is_taken_for_nobody_more_important_is_found(
    priority: int, wanted: int, *, is_right: bool
):
    scene = TenancyScene(preempts=True)
    await later(61.0)
    scene.has("v", 4, {"a-0": 4})
    condition = NO_ROOM if wanted else PLACED
    scene.has("other", wanted, {}, condition, namespace="u", priority=priority)
    scene.has("v", 4, {"a-0": 2}, PREEMPTED)
    assert (scene.found == []) is is_right
    assert all("took 2 of t/v (wants 4) off a-0 and told no reason" in one for one in scene.found)
