"""Whether the reason that a move tells is true: how long its pod was not Ready, whether the vpod
stands better, who removed what.
"""

import asyncio
from math import inf
from typing import Any

import pytest

from extender.kube.api import Obj
from extender.lab.simulation.checkers.evenness import unevenness
from extender.lab.simulation.checkers.excuses import EXCUSE_S
from tests.simulation.checker_scene import (
    PERSON,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
    stamp,
)

pytestmark = pytest.mark.sim

LIMIT_S = 30
PROMPT: dict[str, Any] = {"late_s": 1.0}
"""Nothing is late, so what is checked is checked to seconds."""


def condition(ready: bool) -> Obj:
    return {"conditions": [{"type": "Ready", "status": str(ready)}]}


def seen(
    scene: CheckerScene,
    name: str,
    ready: bool,
    *,
    node: str = "n",
    ledger: dict[str, int] | None = None,
    phase: str = "Running",
) -> None:
    obj = pod_object(name, ledger or {}, node=node, slots=100)
    scene.write("pods", name, {**obj, "status": {**condition(ready), "phase": phase}}, PERSON)


def node_is(scene: CheckerScene, name: str, ready: bool, zone: str = "z") -> None:
    labels = {"topology.kubernetes.io/zone": zone}
    scene.write(
        "nodes",
        name,
        {"metadata": {"name": name, "labels": labels}, "status": condition(ready)},
        PERSON,
    )


def moved(
    scene: CheckerScene, reason: str, before: dict[str, int], after: dict[str, int]
) -> list[str]:
    """What is said of a move of one vreplica between two placements of t/v."""
    for name in {*before, *after}:
        node = scene.checkers.pods[name].node if name in scene.checkers.pods else NODES[name]
        scene.pod(name, {"t/v": 9}, actor=PERSON, node=node, slots=100)
    scene.vpod("v", sum(before.values()), before, actor=PERSON)
    # It is the scene that has placed it, and no person that has forged it.
    scene.checkers._edited_records._statuses.clear()
    scene.checkers._edited_records._ledgers.clear()
    source = next(name for name, count in before.items() if after.get(name, 0) < count)
    target = next(name for name, count in after.items() if before.get(name, 0) < count)
    told = f"1 vreplica moved from {source} to {target} ({reason})"
    scene.vpod("v", sum(after.values()), after, moved=(told, stamp(scene.checkers._clock())))
    return [line for line in scene.found if line.startswith(("I4", "I3"))]


NODES = {"a-0": "n-a1", "a-1": "n-a1", "a-2": "n-a2", "a-3": "n-b1"}
ZONES = {"n-a1": "a", "n-a2": "a", "n-b1": "b"}


def waiting_scene(limit_s: int | None = LIMIT_S, **of_checkers: Any) -> CheckerScene:
    scene = CheckerScene(**(of_checkers or PROMPT))
    scene.pool(slots=100, ordinals=4, rescheduleAfterSeconds=limit_s)
    node_is(scene, "n", ready=True)
    return scene


def rescheduled(scene: CheckerScene) -> list[str]:
    return moved(scene, "Reschedule", {"a-1": 2}, {"a-1": 1, "a-0": 1})


class TestReschedule:
    @in_virtual_time
    async def test_a_pod_that_was_not_ready_for_as_long_as_the_pool_waits_may_be_left(self):
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=False)
        await later(LIMIT_S)
        assert rescheduled(scene) == []

    @in_virtual_time
    async def test_a_pod_whose_containers_have_ended_is_absent_though_it_still_says_ready(self):
        """Seed 181398761."""
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=True, phase="Succeeded")
        await later(LIMIT_S)
        assert rescheduled(scene) == []

    @in_virtual_time
    async def test_one_that_was_not_ready_for_less_may_not(self):
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=False)
        await later(LIMIT_S - 5)
        assert len(rescheduled(scene)) == 1

    @in_virtual_time
    async def test_one_that_has_come_back_may_not_be_left_for_what_is_long_over(self):
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=False)
        await later(LIMIT_S)
        seen(scene, "a-1", ready=True)
        await later(5)
        assert len(rescheduled(scene)) == 1

    @in_virtual_time
    async def test_what_is_not_wanted_any_more_may_leave_it_while_the_move_from_it_is_still_told(
        self,
    ):
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=False)
        await later(LIMIT_S)
        told = ("1 vreplica moved from a-1 to a-0 (Reschedule)", stamp(scene.checkers._clock()))
        assert rescheduled(scene) == []
        seen(scene, "a-1", ready=True, ledger={"t/v": 9})
        await later(7)
        scene.vpod("v", 1, {"a-0": 1}, moved=told)
        assert [line for line in scene.found if line.startswith("I4")] == []

    @in_virtual_time
    async def test_a_pod_of_that_name_goes_on_with_the_absence_of_the_last_one(self):
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        scene.write("pods", "a-1", None, PERSON)
        await later(LIMIT_S / 2)
        seen(scene, "a-1", ready=False)
        await later(LIMIT_S / 2)
        assert rescheduled(scene) == []

    @in_virtual_time
    async def test_a_node_that_is_not_ready_takes_its_pods_with_it(self):
        scene = waiting_scene()
        seen(scene, "a-1", ready=True)
        node_is(scene, "n", ready=False)
        await later(LIMIT_S)
        assert rescheduled(scene) == []

    @in_virtual_time
    async def test_a_pool_without_a_limit_leaves_none(self):
        scene = waiting_scene(limit_s=None)
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=False)
        await later(1000)
        assert len(rescheduled(scene)) == 1

    @in_virtual_time
    async def test_where_views_are_late_a_short_absence_may_have_looked_long_and_none_may_not(self):
        scene = waiting_scene(late_s=EXCUSE_S)
        seen(scene, "a-1", ready=True)
        await later(1000)
        assert len(rescheduled(scene)) == 1
        seen(scene, "a-1", ready=False)
        seen(scene, "a-1", ready=True)
        assert rescheduled(scene) == []

    @in_virtual_time
    async def test_a_leader_whose_wall_clock_is_wrong_counts_as_any_other(self):
        scene = waiting_scene(late_s=1.0, now_of=lambda _actor: 0.0)
        seen(scene, "a-1", ready=True)
        seen(scene, "a-1", ready=False)
        await later(1)
        scene.pod("a-0", {})  # so the replica has shown its clock
        assert len(rescheduled(scene)) == 1


def spreading_scene(profile: str = "spread", **circumstances: Any) -> CheckerScene:
    scene = CheckerScene(**{**PROMPT, **circumstances})
    scene.pool(slots=100, ordinals=4, profile=profile)
    for node, zone in ZONES.items():
        node_is(scene, node, ready=True, zone=zone)
    return scene


BETTER = [
    ("spread", {"a-0": 2, "a-3": 0}, {"a-0": 1, "a-3": 1}),  # another zone
    ("ha", {"a-0": 2}, {"a-0": 1, "a-2": 1}),  # another node
    ("spread", {"a-0": 2}, {"a-0": 1, "a-1": 1}),  # another pod
    ("pack", {"a-1": 2}, {"a-1": 1, "a-0": 1}),
]
NO_BETTER = [
    ("spread", {"a-0": 1}, {"a-1": 1}),  # the same
    ("spread", {"a-0": 1, "a-3": 1}, {"a-0": 2}),  # worse
    ("ha", {"a-2": 2, "a-3": 3}, {"a-2": 1, "a-3": 4}),  # a pod's load counts less than its zone's
    ("pack", {"a-0": 2}, {"a-0": 1, "a-1": 1}),
    ("default", {"a-1": 2}, {"a-1": 1, "a-0": 1}),  # it wants nothing
]


class TestPolicy:
    @pytest.mark.parametrize(("profile", "before", "after"), BETTER)
    @in_virtual_time
    async def test_a_move_after_which_a_vpod_stands_better(self, profile, before, after):
        assert moved(spreading_scene(profile), "Policy", before, after) == []

    @pytest.mark.parametrize(("profile", "before", "after"), NO_BETTER)
    @in_virtual_time
    async def test_a_move_that_makes_nothing_better(self, profile, before, after):
        assert moved(spreading_scene(profile), "Policy", before, after) != []

    @pytest.mark.parametrize(
        ("name", "ago_s", "excused"),
        [("a-3", 1.0, True), ("a-3", 60.0, False), ("b-0", 1.0, False)],
    )
    @in_virtual_time
    async def test_a_part_of_a_move_may_be_told_first_if_a_ledger_was_not_written(
        self, name, ago_s, excused
    ):
        """Seed 590001701."""
        failed = {name: asyncio.get_running_loop().time() - ago_s}
        scene = spreading_scene(failed_at=lambda _actor, _kind, pod: failed.get(pod, -inf))
        scene.pod(name, {}, actor=PERSON, node="n-b1", slots=100)
        found = moved(scene, "Policy", {"a-0": 1}, {"a-1": 1})
        assert (found == []) is excused

    def test_a_zone_weighs_more_than_a_node_and_that_more_than_a_pod(self):
        def place_of(name: str) -> tuple[str, str]:
            return ZONES[NODES[name]], NODES[name]

        all_on_one, pods, nodes, zones = (
            unevenness(placements, place_of)
            for placements in (
                {"a-0": 2},
                {"a-0": 1, "a-1": 1},
                {"a-0": 1, "a-2": 1},
                {"a-0": 1, "a-3": 1},
            )
        )
        assert all_on_one > pods > nodes > zones


def left_pool_a(profile_of_a: str, profile_of_b: str) -> list[str]:
    """What is said of a move by policy that is told once the vpod has gone from pool a to
    pool b.
    """
    scene = spreading_scene(profile_of_a)
    scene.pool("b", slots=100, ordinals=4, profile=profile_of_b)
    for name in ("a-0", "a-1"):
        scene.pod(name, {"t/v": 9}, actor=PERSON, node=NODES[name], slots=100)
    scene.vpod("v", 1, {"a-1": 2}, actor=PERSON)
    scene.checkers._edited_records._statuses.clear()  # as in ``moved``
    scene.checkers._edited_records._ledgers.clear()
    scene.vpod("v", 1, {"a-1": 2}, actor=PERSON, pool="b")
    told = ("1 vreplica moved from a-1 to a-0 (Policy)", stamp(scene.checkers._clock()))
    scene.vpod("v", 1, {}, moved=told, pool="b")
    return [line for line in scene.found if line.endswith("is not why")]


@in_virtual_time
async def test_a_move_that_is_told_after_its_vpod_has_left_the_pool_was_that_pools():
    assert left_pool_a("pack", "default") == []
    assert len(left_pool_a("default", "pack")) == 1


@in_virtual_time
async def test_what_a_vpod_no_longer_wants_may_leave_also_where_its_tenant_may_lose_some():
    """minPodsPerVPod gave it 3 and gives it 2 now. Seed 510000021 (500 events)."""
    scene = waiting_scene()
    scene.pool(slots=100, ordinals=4, rescheduleAfterSeconds=LIMIT_S, tenancy={"defaultLimit": 0})
    for name, count in {"a-0": 3, "a-1": 1, "a-2": 1}.items():
        scene.pod(name, {"t/v": count}, actor=PERSON, node=NODES[name], slots=100)
    scene.vpod("v", 1, {"a-0": 3})
    told = "1 vreplica moved from a-0 to a-2 (Compaction)"
    found = len(scene.found)
    scene.vpod("v", 1, {"a-1": 1, "a-2": 1}, moved=(told, stamp(scene.checkers._clock())))
    assert [line for line in scene.found[found:] if "told no reason" in line] == []


@pytest.mark.parametrize(("gone_s", "found"), [(0, 0), (EXCUSE_S - 1, 0), (EXCUSE_S + 1, 1)])
@in_virtual_time
async def test_a_move_that_makes_room_may_have_been_decided_before_its_pod_was_scaled_away(
    gone_s: float, found: int
):
    """Seed 3000038."""
    scene = waiting_scene()
    scene.scale(1, actor=PERSON)
    await later(gone_s)
    assert len(moved(scene, "MakeRoom", {"a-1": 1}, {"a-0": 1})) == found


async def evened(source: int, target: int, target_before: int | None = None) -> list[str]:
    """What is said of a move by LeastAllocated, from a pod with ``source`` slots in use to one with
    ``target`` of others; long before, with ``target_before``.
    """
    scene = CheckerScene()
    scene.pool(slots=20, profile="even-slots")
    scene.pod("a-0", {"t/v": 1, "t/w": source - 1}, actor=PERSON, slots=20)
    before = target if target_before is None else target_before
    scene.pod("a-1", {"t/x": before}, actor=PERSON, slots=20)
    scene.vpod("v", 1, {"a-0": 1}, actor=PERSON)
    scene.checkers._edited_records._statuses.clear()  # as in ``moved``
    scene.checkers._edited_records._ledgers.clear()
    await later(100.0)
    scene.pod("a-1", {"t/x": target}, actor=PERSON, slots=20)
    scene.pod("a-1", {"t/x": target, "t/v": 1}, slots=20)
    told = ("1 vreplica moved from a-0 to a-1 (Policy)", stamp(scene.checkers._clock()))
    scene.vpod("v", 1, {"a-1": 1}, moved=told)
    return [line for line in scene.found if "moved t/v by policy" in line]


@in_virtual_time
async def test_a_profile_that_compares_pods_moves_to_one_that_is_emptier():
    assert await evened(5, 2) == []
    assert len(await evened(2, 5)) == 1
    assert await evened(2, 5, target_before=1) == [], "its decision may be that old"


async def compacted(away_s: float, *, source_ready: bool = True, late_s: float = 1.0) -> list[str]:
    """What is said of a move from a-1 to a-0, which has not been Ready for so long; -1: it is
    Ready.
    """
    scene = waiting_scene(late_s=late_s)
    ledger = {"t/v": 2}
    for name in ("a-0", "a-1"):
        seen(scene, name, ready=True, ledger=ledger)
    scene.vpod("v", 2, {"a-1": 2}, actor=PERSON)
    scene.checkers._edited_records._statuses.clear()  # as in ``moved``
    scene.checkers._edited_records._ledgers.clear()
    await later(100)
    seen(scene, "a-1", ready=source_ready, ledger=ledger)
    seen(scene, "a-0", ready=away_s < 0, ledger=ledger)
    await later(max(0.0, away_s))
    told = ("1 vreplica moved from a-1 to a-0 (Compaction)", stamp(scene.checkers._clock()))
    scene.vpod("v", 2, {"a-1": 1, "a-0": 1}, moved=told)
    return [line for line in scene.found if line.startswith("I4")]


class TestGoingOnBeingServed:
    @in_virtual_time
    async def test_compaction_takes_nothing_that_is_served_to_a_pod_that_is_down(self):
        (found,) = await compacted(20)
        assert "has t/v served by nobody: a-0 was not Ready" in found

    @pytest.mark.parametrize(
        "case",
        [
            pytest.param({"away_s": -1}, id="ready"),
            pytest.param({"away_s": 8}, id="excused"),
            pytest.param({"away_s": 20, "source_ready": False}, id="not served before"),
            pytest.param({"away_s": 20, "late_s": 60.0}, id="seen as it was a minute ago"),
        ],
    )
    @in_virtual_time
    async def test_nothing_is_said_of_a_move_that_ends_no_service(self, case):
        assert await compacted(**case) == []

    @pytest.mark.parametrize("published_before", [True, False])
    @in_virtual_time
    async def test_a_pod_that_was_published_before_its_move_is_reported_may_have_gone_down_since(
        self, published_before: bool
    ):
        """Seed 240000907: the vpod has grown while adapters handed its move over."""
        scene = waiting_scene()
        handoff = {"mode": "Overlap"}
        scene.pool(slots=100, ordinals=4, rescheduleAfterSeconds=LIMIT_S, handoff=handoff)
        ledger = {"t/v": 2}
        for name in ("a-0", "a-1", "a-2"):
            seen(scene, name, ready=True, ledger=ledger)
        before = {"a-1": 2, "a-0" if published_before else "a-2": 1}
        scene.vpod("v", 3, before, actor=PERSON)
        scene.checkers._edited_records._statuses.clear()  # as in ``moved``
        scene.checkers._edited_records._ledgers.clear()
        await later(100)
        seen(scene, "a-0", ready=False, ledger=ledger)
        await later(20)
        told = ("1 vreplica moved from a-1 to a-0 (Compaction)", stamp(scene.checkers._clock()))
        scene.vpod("v", 3, {"a-0": 1, "a-1": 1, "a-2": 1}, moved=told)
        found = [line for line in scene.found if "served by nobody" in line]
        assert len(found) == (0 if published_before else 1)


async def trimmed(ledger: dict[str, Any], *, rebound: bool) -> list[str]:
    """What is said of a trim long after t/v has become heavier. ``ledger``: as the service then
    wrote it.
    """
    scene = waiting_scene()
    scene.pod("a-0", {"t/v": 2, "t/w": 1}, slots=10)
    scene.vpod("v", 2, {"a-0": 2})
    scene.vpod("v", 2, {"a-0": 2}, weight=3, actor=PERSON)
    if rebound:
        scene.write("pods", "a-0", None, PERSON)
        await later(2 * EXCUSE_S)
        scene.pod("a-0", {}, slots=10, node="", uid="2", actor=PERSON)
    scene.pod("a-0", ledger, slots=10, uid="2" if rebound else "1")
    assert scene.found == []
    await later(2 * EXCUSE_S)
    told = "1 vreplica moved from a-0 (Overcommit)"
    scene.vpod("v", 2, {"a-0": 1}, weight=3, moved=(told, stamp(scene.checkers._clock())))
    return [line for line in scene.found if line.startswith("I4")]


@pytest.mark.parametrize("rebound", [False, True], ids=["patched", "bound anew"])
@in_virtual_time
async def test_a_ledger_with_former_weights_may_be_trimmed_however_long_nobody_led(rebound: bool):
    assert await trimmed({"t/v": 2}, rebound=rebound) == []


@in_virtual_time
async def test_what_was_written_by_former_slots_may_be_trimmed_however_long_nobody_led():
    """Seed 317000043: written 43 s after slotsPerPod was lowered, trimmed 62 s after."""
    scene = CheckerScene()
    scene.pool(slots=7)
    scene.vpod("v", 6, {})
    scene.pod("a-0", {}, slots=12)
    scene.pool(slots=4)
    await later(EXCUSE_S - 10)
    scene.pod("a-0", {"t/v": 6}, slots=12)
    scene.vpod("v", 6, {"a-0": 6})
    assert scene.found == []
    await later(20)
    told = "2 vreplicas moved from a-0 (Overcommit)"
    scene.vpod("v", 6, {"a-0": 4}, moved=(told, stamp(scene.checkers._clock())))
    assert [line for line in scene.found if line.startswith("I4")] == []


@pytest.mark.parametrize("rebound", [False, True], ids=["patched", "bound anew"])
@in_virtual_time
async def test_a_ledger_with_the_weights_of_now_that_fits_is_not_trimmed_long_after(rebound: bool):
    assert len(await trimmed({"t/v": [2, 3]}, rebound=rebound)) == 1


class TestScalingDown:
    @in_virtual_time
    async def test_a_replica_that_removes_a_pod_with_a_published_placement_is_told(self):
        scene = CheckerScene()
        scene.pool(slots=4, ordinals=2)
        scene.pod("a-1", {"t/v": 1})
        scene.vpod("v", 1, {"a-1": 1})
        scene.write("statefulsets", "a", {"metadata": {"name": "a"}, "spec": {"replicas": 1}})
        assert scene.found == ["I3: replica-1 removed a-1, which t/v is on"]

    @in_virtual_time
    async def test_a_person_may_and_so_may_a_replica_that_removes_an_empty_one(self):
        scene = CheckerScene()
        scene.pool(slots=4, ordinals=3)
        scene.pod("a-1", {"t/v": 1})
        scene.vpod("v", 1, {"a-1": 1})
        scene.write("statefulsets", "a", {"metadata": {"name": "a"}, "spec": {"replicas": 2}})
        scene.write(
            "statefulsets", "a", {"metadata": {"name": "a"}, "spec": {"replicas": 1}}, PERSON
        )
        assert scene.found == []
