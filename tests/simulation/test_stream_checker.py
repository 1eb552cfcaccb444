"""The checkers look at objects of a foreign kind as at vpods (no engine, no service)."""

from datetime import UTC, datetime

import pytest

from extender.kube.api import Obj
from extender.lab.clock import wall_clock
from extender.lab.simulation.world.streams import stream_object
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from tests.simulation.checker_scene import (
    PERSON,
    REPLICA,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
)

pytestmark = [pytest.mark.sim, pytest.mark.timeout(60)]

KEY = "t/s@stream.example.dev"


class StreamScene(CheckerScene):
    """With a Stream that wants 2, and has them on a-0."""

    def __init__(self) -> None:
        super().__init__()
        self.pool()
        self.pod("a-0", {KEY: 2})
        self.pod("a-1", {})
        self.stream({}, actor=PERSON)
        self.stream({"a-0": 2})

    def stream(
        self,
        placements: dict[str, int],
        *,
        wanted: int = 2,
        actor: str = REPLICA,
        moved: str = "",
        own: str = "Unknown",
    ) -> None:
        """``moved``: the message of its condition Moved. ``own``: the status of the condition that
        its own controller writes. No pod of these scenes is Ready.
        """
        placed = sum(placements.values())
        why = "PodNotReady" if placed else "NotAllPlaced"
        conditions: list[Obj] = [
            {"type": "Ready", "status": own},
            {"type": "vreplica.dev/Scheduled", "status": str(placed >= wanted), "reason": "x"},
            {"type": "vreplica.dev/Available", "status": "False", "reason": why},
        ]
        if moved:
            when = datetime.fromtimestamp(wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions.append(
                {
                    "type": "vreplica.dev/Moved",
                    "reason": "x",
                    "message": moved,
                    "lastTransitionTime": when,
                }
            )
        obj = stream_object("s", wanted, 1, "a")
        obj["metadata"] |= {"namespace": "t", "uid": "s", "generation": 1}
        assigned = [{"pod": name, "share": count} for name, count in placements.items()]
        status = {"assigned": assigned, "scheduled": placed, "conditions": conditions}
        self.write("streams", "s", {**obj, "status": status}, actor)


@in_virtual_time
async def test_what_ledgers_cover_is_fine_and_settles():
    scene = StreamScene()
    assert scene.found == []
    assert scene.checkers.differences() == []


@in_virtual_time
async def test_a_status_that_no_ledger_covers_is_found():
    scene = StreamScene()
    scene.stream({"a-0": 2, "a-1": 1}, wanted=3)
    assert [line[:3] for line in scene.found] == ["I2:"]


@in_virtual_time
async def test_a_move_for_no_reason_is_found():
    scene = StreamScene()
    await later(61.0)  # the pool is new no longer
    scene.pod("a-1", {KEY: 2})
    scene.stream({"a-1": 2})
    (found,) = scene.found
    assert found.startswith(f"I4: replica-1 took 2 of {KEY} (wants 2) off a-0 and told no reason")


@in_virtual_time
async def test_a_marked_pod_is_a_reason_to_leave_it():
    scene = StreamScene()
    await later(61.0)
    marked = pod_object("a-0", {KEY: 2})
    marked["metadata"]["annotations"][UNSCHEDULABLE_ANNOTATION] = "true"
    scene.write("pods", "a-0", marked, PERSON)
    scene.pod("a-1", {KEY: 2})
    scene.stream({"a-1": 2}, moved="2 vreplicas moved from a-0 to a-1 (Drain)")
    assert scene.found == []


@in_virtual_time
async def test_a_reason_that_is_not_true_is_found():
    scene = StreamScene()
    await later(61.0)
    scene.pod("a-1", {KEY: 2})
    scene.stream({"a-1": 2}, moved="2 vreplicas moved from a-0 to a-1 (Drain)")
    (found,) = scene.found
    assert found.startswith(f"I4: {KEY} was moved, and ReportedMove(vreplicas=2")


@in_virtual_time
async def test_a_condition_of_its_own_controller_that_the_service_changes_is_found():
    scene = StreamScene()
    scene.stream({"a-0": 2}, own="True", actor=PERSON)
    assert scene.found == []
    scene.stream({"a-0": 2}, own="False")
    (found,) = scene.found
    assert found.startswith(f"status: {REPLICA} changed the conditions of others on {KEY}")


@in_virtual_time
async def test_one_that_says_it_is_served_while_its_pod_is_not_ready_is_not_settled():
    scene = StreamScene()
    obj = scene._objects["streams", "s"]
    available = {"type": "vreplica.dev/Available", "status": "True", "reason": "AllReady"}
    conditions = [*obj["status"]["conditions"][:2], available]
    scene.write(
        "streams", "s", {**obj, "status": {**obj["status"], "conditions": conditions}}, PERSON
    )
    (found,) = scene.checkers.differences()
    assert found == f"{KEY}: 0 of 2 are served, and Available is ('True', 'AllReady')"


@in_virtual_time
async def test_one_that_is_not_all_placed_although_there_is_room_is_not_settled():
    scene = StreamScene()
    scene.stream({"a-0": 2}, wanted=3, actor=PERSON)
    assert [line[:3] for line in scene.checkers.differences()] == ["I3:"]


@in_virtual_time
async def test_a_pod_is_not_removed_with_a_stream_that_is_on_it():
    scene = StreamScene()
    scene.pod("a-0", {}, actor=PERSON, uid="2")
    scene.scale(0)
    assert scene.found == [f"I3: {REPLICA} removed a-0, which {KEY} is on"]


@pytest.mark.parametrize("ledger", [{}, {KEY: 2}], ids=["nobody knows of it", "the ledger has it"])
@in_virtual_time
async def test_while_the_pool_is_deleted_only_ledgers_tell_of_a_stream(ledger: dict[str, int]):
    """Its AdapterPool says what to watch. Another pool may have the StatefulSet meanwhile."""
    scene = StreamScene()
    scene.pod("a-0", ledger, actor=PERSON, uid="2")
    scene.write("adapterpools", "a", None, PERSON)
    scene.scale(0)
    assert bool(scene.found) is bool(ledger)


@in_virtual_time
async def test_a_pool_that_is_back_excuses_for_as_long_as_watches_may_be_late():
    scene = StreamScene()
    scene.pod("a-0", {}, actor=PERSON, uid="2")
    scene.write("adapterpools", "a", None, PERSON)
    scene.pool()
    scene.scale(0)
    assert scene.found == []
    scene.scale(1, actor=PERSON)
    await later(120.0)
    scene.scale(0)
    assert len(scene.found) == 1
