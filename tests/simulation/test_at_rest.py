"""A run ends once nothing has been written for long enough; what counts as a write. At rest a pod
that waits for its turn to be evicted keeps what it carries.
"""

from typing import Any, Final

import pytest

from extender.model.eviction import Eviction, encode_eviction
from extender.model.moves import MoveReason
from extender.model.names import EVICTING_ANNOTATION
from tests.simulation.checker_scene import CheckerScene, in_virtual_time, later, pod_object

pytestmark = pytest.mark.sim

BEFORE: Final = Eviction(0.0, 10.0, MoveReason.ROLLOUT)


async def written_at(*marks: Eviction) -> float:
    """When pods were last written, if these marks are written one a second."""
    scene = CheckerScene()
    for mark in marks:
        await later(1.0)
        pod = pod_object("a-0", None)
        pod["metadata"]["annotations"][EVICTING_ANNOTATION] = encode_eviction(mark, "1")
        scene.write("pods", "a-0", pod)
    return round(scene.checkers.last_write_s["pods"], 3)


@in_virtual_time
async def test_that_a_pods_mark_is_renewed_is_no_write():
    """A rollout waits without an end for a pod that has room on no node (seed 20000222)."""
    assert await written_at(BEFORE, BEFORE._replace(latest_s=110.0)) == 1.0


@pytest.mark.parametrize(
    "changed",
    [
        {"first_s": 5.0},
        {"reason": MoveReason.MAINTENANCE},
        {"turn_s": 20.0, "latest_s": 110.0},
    ],
    ids=str,
)
def test_what_else_changes_of_it_is_one(changed: dict[str, Any]):
    @in_virtual_time
    async def play() -> None:
        assert await written_at(BEFORE, BEFORE._replace(**changed)) == 2.0

    play()


@in_virtual_time
async def test_that_a_pod_is_written_as_it_is_is_one():
    assert await written_at(BEFORE, BEFORE) == 2.0


@pytest.mark.parametrize(
    ("mark", "shall_go"),
    [
        pytest.param(Eviction(0.0, 10.0, MoveReason.ROLLOUT), True, id="by a rollout"),
        pytest.param(Eviction(0.0, 10.0), False, id="it waits for its turn"),
        pytest.param(
            Eviction(0.0, 10.0, MoveReason.MAINTENANCE, queued=True, behind="a-1"),
            False,
            id="another pod goes first (seed 245130788)",
        ),
        pytest.param(Eviction(0.0, 10.0, turn_s=20.0), True, id="its turn has come"),
    ],
)
def test_what_is_on_a_pod_that_is_evicted_counts_as_placed_until_its_turn(
    mark: Eviction, shall_go: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        scene.pool()
        pod = pod_object("a-0", {"t/v": 1})
        pod["metadata"]["annotations"][EVICTING_ANNOTATION] = encode_eviction(mark, "1")
        scene.write("pods", "a-0", pod)
        scene.vpod("v", 1, {"a-0": 1})
        told = [line for line in scene.checkers.differences() if "1 of 1 placed" in line]
        assert bool(told) is shall_go

    play()
