"""What adapters are told goes with their ledgers, and the checker finds what does not."""

import json
from typing import Any

import pytest

from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.world.facts import ASSIGNMENT
from extender.lab.simulation.world.profile import FaultProfile
from tests.simulation.checker_scene import (
    REPLICA,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
)

pytestmark = pytest.mark.sim

LEDGER = {"t/v": 2}


def tell(
    scene: CheckerScene,
    name: str = "a-0",
    ledger: dict[str, int] | None = None,
    *,
    actor: str = REPLICA,
    uid: str = "1",
    **told: Any,
) -> None:
    """A pod with a ledger, and an assignment of it that ``told`` changes."""
    ledger = LEDGER if ledger is None else ledger
    share = {"weight": 1, "of": 2, "epoch": told.pop("epoch", 7), "state": "Serve"}
    shares = {key: {"vreplicas": count, **share} for key, count in ledger.items()}
    document = {"generation": 1, "pod": f"n/{name}", "uid": "1", "shares": shares, **told}
    obj = pod_object(name, ledger, node="n", slots=4, uid=uid)
    obj["metadata"]["annotations"][ASSIGNMENT] = json.dumps(document)
    scene.write("pods", name, obj, actor)


def found(scene: CheckerScene) -> list[str]:
    """What is found of assignments."""
    words = ("assignment", "epoch", "came to")
    return [line for line in scene.found if any(word in line for word in words)]


@in_virtual_time
async def test_an_assignment_as_its_ledger_is_right():
    scene = CheckerScene()
    scene.pool(handoff={})
    tell(scene)
    tell(scene, generation=2)
    assert found(scene) == []
    assert [one for one in scene.checkers.differences() if "told" in one] == []


ROWS = [
    pytest.param({"shares": {}}, "assignment of a-0 is {}", id="it lacks a share"),
    pytest.param({"uid": "9"}, "is for the UID 1", id="of another pod"),
    pytest.param(
        {"generation": 1, "note": "new"}, "has generation 1 after 1", id="no new generation"
    ),
    pytest.param({"generation": 2, "epoch": 8}, "changed while it stayed", id="another epoch"),
]


@pytest.mark.parametrize(("told", "finding"), ROWS)
def test_one_that_is_not_is_found(told: dict[str, Any], finding: str):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        scene.pool(handoff={})
        tell(scene)
        tell(scene, **{"generation": 2, **told})
        (line,) = found(scene)
        assert finding in line

    play()


@pytest.mark.parametrize(
    ("uid", "restored", "is_found"),
    [
        pytest.param("1", False, True, id="the same pod"),
        pytest.param("2", False, False, id="the ordinal's next pod"),
        pytest.param("1", True, False, id="etcd was restored"),
    ],
)
def test_a_generation_that_begins_anew_is_found(uid: str, restored: bool, is_found: bool):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene(restored=lambda: restored)
        scene.pool(handoff={})
        tell(scene, generation=5)
        scene.pod("a-0", LEDGER, node="n", uid="1")
        tell(scene, generation=1, epoch=8, uid=uid)
        expected = ["assignment of a-0 has generation 1 after 5"] if is_found else []
        assert [one for one in found(scene) if "generation" in one] == expected

    play()


@pytest.mark.parametrize(
    ("after_s", "restored", "is_found"),
    [
        pytest.param(61.0, False, True, id="given before"),
        pytest.param(1.0, False, False, id="given at the same time"),
        pytest.param(61.0, True, False, id="etcd was restored, and nobody has the other one"),
    ],
)
def test_an_epoch_that_does_not_grow_is_found(after_s: float, restored: bool, is_found: bool):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene(restored=lambda: restored)
        scene.pool(handoff={})
        tell(scene, epoch=7)
        scene.write("pods", "a-0", None)
        await later(after_s)
        tell(scene, "a-1", epoch=6)
        assert (found(scene) == ["t/v came to a-1 with epoch 6, after 7"]) is is_found

    play()


@pytest.mark.parametrize(
    ("pool", "difference"),
    [
        pytest.param({"handoff": {}}, "a-0 has no assignment", id="it is told nothing"),
        pytest.param({}, None, id="its pool tells nothing"),
    ],
)
def test_at_rest_a_bound_pod_has_been_told(pool: dict[str, Any], difference: str | None):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        scene.pool(**pool)
        scene.pod("a-0", {})
        expected = [difference] if difference else []
        assert [one for one in scene.checkers.differences() if "assignment" in one] == expected

    play()


@in_virtual_time
async def test_at_rest_a_pool_without_handoff_has_no_assignments_left():
    scene = CheckerScene()
    scene.pool()
    tell(scene, actor="")
    (line,) = [one for one in scene.checkers.differences() if "assignment" in one]
    assert line == "a-0 has an assignment, and its pool no handoff"


TRIALS = [
    Trial(seed, events=60, profile=FaultProfile(parts=frozenset({"handoff"})))
    for seed in (1014, 1020, 1025)
]


def test_adapters_are_told_through_all_faults():
    """A pod that this replica had bound was never told (seed 1020)."""
    outcomes = [simulate(trial) for trial in TRIALS]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(TRIALS)
