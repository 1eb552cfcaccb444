"""What a ledger may fail to cover (I2): what a person, or a bind into fewer slots, has taken away,
and nothing else.
"""

import pytest

from tests.simulation.checker_scene import PERSON, CheckerScene, in_virtual_time, later

pytestmark = pytest.mark.sim

V, W = "t/v", "t/w"


def uncovered(scene: CheckerScene) -> list[str]:
    """Vpods that were found uncovered since it was last asked."""
    return [
        line.partition("status of ")[2].partition(" ")[0]
        for line in scene.found
        if line.startswith("I2")
    ]


async def full_pod(slots: int = 4) -> CheckerScene:
    """A pod with 3 of one vpod and 1 of another, long after all was made."""
    scene = CheckerScene()
    scene.pool(slots=slots)
    scene.pod("a-0", {V: 3, W: 1}, slots=slots)
    scene.vpod("v", 3, {"a-0": 3})
    scene.vpod("w", 1, {"a-0": 1})
    await later(100.0)
    return scene


def comes_back_with(scene: CheckerScene, ledger: dict[str, int], slots: int) -> None:
    scene.write("pods", "a-0", None, PERSON)
    scene.pod("a-0", None, node="", slots=slots, uid="2", actor=PERSON)
    scene.pod("a-0", ledger, slots=slots, uid="2")


@in_virtual_time
async def test_a_pod_that_comes_back_into_fewer_slots_may_lack_for_a_while_what_does_not_fit():
    scene = await full_pod()
    scene.pool(slots=3)
    comes_back_with(scene, {V: 3}, slots=3)
    await later(100.0)
    scene.vpod("v", 3, {"a-0": 3})
    scene.pod("a-0", {V: 3}, slots=3, uid="2", actor="kubelet")
    assert uncovered(scene) == []


@in_virtual_time
async def test_a_pod_that_comes_back_into_fewer_slots_has_what_fits():
    scene = await full_pod()
    scene.pool(slots=3)
    comes_back_with(scene, {V: 2}, slots=3)
    assert uncovered(scene) == [V, W]


@in_virtual_time
async def test_a_pod_that_comes_back_into_as_many_slots_has_all():
    scene = await full_pod()
    comes_back_with(scene, {V: 3}, slots=4)
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_a_status_that_a_person_has_written_may_take_the_room_of_what_the_last_one_held():
    scene = await full_pod()
    scene.write("pods", "a-0", None, PERSON)
    scene.pod("a-0", None, node="", uid="2", actor=PERSON)
    scene.vpod("v", 4, {"a-0": 4}, actor=PERSON)
    scene.pod("a-0", {V: 4}, uid="2")
    assert uncovered(scene) == []


@in_virtual_time
async def test_a_status_that_a_person_has_written_excuses_nothing_that_fits_beside_it():
    scene = await full_pod(slots=5)
    scene.write("pods", "a-0", None, PERSON)
    scene.pod("a-0", None, node="", slots=5, uid="2", actor=PERSON)
    scene.vpod("v", 4, {"a-0": 4}, actor=PERSON)
    scene.pod("a-0", {V: 4}, slots=5, uid="2")
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_what_a_lost_ledger_had_may_be_published_for_a_while_and_then_until_it_is_put_right():
    scene = await full_pod()
    scene.vpod("w", 1, {})
    scene.write("pods", "a-0", None, PERSON)
    scene.pod("a-0", None, uid="2", actor=PERSON)
    scene.vpod("w", 1, {"a-0": 1})
    await later(100.0)
    scene.vpod("w", 1, {"a-0": 1}, moved=("x", ""))
    assert uncovered(scene) == []
    await later(100.0)
    scene.pod("a-0", {V: 3, W: 1}, uid="2")
    await later(100.0)
    scene.pod("a-0", {V: 3}, uid="2")
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_what_a_lost_ledger_had_may_not_be_published_later():
    scene = await full_pod()
    scene.vpod("w", 1, {})
    scene.write("pods", "a-0", None, PERSON)
    scene.pod("a-0", None, uid="2", actor=PERSON)
    await later(100.0)
    scene.vpod("w", 1, {"a-0": 1})
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_fewer_slots_excuse_no_pod_in_which_all_fits():
    scene = await full_pod(slots=9)
    scene.pool(slots=5)
    comes_back_with(scene, {V: 3}, slots=5)
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_fewer_slots_do_not_excuse_a_ledger_that_is_lowered_before_its_status():
    scene = await full_pod()
    scene.pool(slots=3)
    scene.pod("a-0", {V: 3}, slots=4)
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_a_person_who_lowers_one_entry_excuses_that_one_until_it_is_covered_again():
    scene = await full_pod()
    scene.pod("a-0", {V: 1, W: 1}, actor=PERSON)
    await later(100.0)
    scene.pod("a-0", {V: 1, W: 1}, actor="kubelet")
    assert uncovered(scene) == []
    scene.pod("a-0", {V: 3, W: 1})
    await later(16.0)
    scene.pod("a-0", {V: 1, W: 1})
    assert uncovered(scene) == [V]


@in_virtual_time
async def test_a_person_who_lowers_one_entry_excuses_no_other():
    scene = await full_pod()
    scene.pod("a-0", {V: 1, W: 1}, actor=PERSON)
    scene.pod("a-0", {V: 1})
    assert uncovered(scene) == [W]


@in_virtual_time
async def test_garbage_and_another_scheduler_uncover_everything():
    scene = await full_pod()
    scene.pod("a-0", "{oops", actor=PERSON)
    assert uncovered(scene) == []
    scene.write("pods", "a-0", None, PERSON)
    scene.pod("a-0", None, uid="2", actor=PERSON)
    assert uncovered(scene) == []


@in_virtual_time
async def test_a_status_is_excused_only_for_what_was_taken_from_its_vpod():
    scene = await full_pod()
    scene.pod("a-0", {V: 1, W: 1}, actor=PERSON)
    scene.vpod("w", 2, {"a-0": 2})
    assert uncovered(scene) == [W]
