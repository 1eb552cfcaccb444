"""I1 in bytes: a ledger is no longer than it may be, and no namespace's part of it grows beyond its
half.
"""

import pytest

from extender.engine.pods import claims
from extender.lab.simulation.world import facts
from extender.model import names
from tests.simulation.checker_scene import PERSON, CheckerScene, in_virtual_time, later

pytestmark = pytest.mark.sim


def a_scene(**circumstances) -> CheckerScene:
    scene = CheckerScene(**circumstances)
    scene.pool("a", slots=5_000)
    scene.pod("a-0", {}, actor=PERSON, slots=5_000)
    assert not scene.found
    return scene


def entries(namespace: str, count: int) -> dict[str, int]:
    return {f"{namespace}/{'v' * 246}{number:04}": 1 for number in range(count)}


@in_virtual_time
async def test_a_ledger_over_its_bytes_is_a_violation():
    scene = a_scene()
    scene.pod("a-0", entries("t", 600), slots=5_000)
    assert any("I1: replica-1 wrote 1" in line and "bytes on a-0" in line for line in scene.found)


@pytest.mark.parametrize(
    ("count", "wrong"), [pytest.param(230, 0, id="half"), pytest.param(240, 1, id="more")]
)
@in_virtual_time
async def test_more_of_a_namespace_than_half_is_a_violation(count, wrong):
    scene = a_scene()
    scene.pod("a-0", {**entries("t", count), **entries("other", 100)}, slots=5_000)
    assert len([line for line in scene.found if "bytes of t on a-0" in line]) == wrong


@pytest.mark.parametrize(
    ("count", "wrong"),
    [pytest.param(240, 0, id="of a share"), pytest.param(600, 1, id="of a ledger")],
)
@in_virtual_time
async def test_two_that_lead_may_write_more_together_than_a_share_and_not_than_a_ledger(
    count, wrong
):
    scene = a_scene(two_lead=lambda: True)
    scene.pod("a-0", entries("t", count), slots=5_000)
    assert len([line for line in scene.found if "bytes" in line]) == wrong


@in_virtual_time
async def test_what_stands_over_the_half_may_stay_and_become_less():
    scene = a_scene()
    scene.pod("a-0", entries("t", 300), actor=PERSON, slots=5_000)
    scene.pod("a-0", entries("t", 299), slots=5_000)
    assert not [line for line in scene.found if "bytes" in line]


@pytest.mark.parametrize(
    ("ago_s", "wrong"), [pytest.param(5.0, 0, id="lately"), pytest.param(500.0, 1, id="long ago")]
)
@in_virtual_time
async def test_of_what_comes_with_a_bind_the_vpods_that_left_lately_do_not_count(
    ago_s: float, wrong: int
):
    """Seed 243992419: a replica whose watch was behind bound the pod with what they published."""
    scene = CheckerScene()
    scene.pool("a", slots=5_000)
    scene.pod("a-0", entries("t", 240), actor=PERSON, slots=5_000)
    scene.pod("a-1", dict.fromkeys(entries("t", 20), 1), actor=PERSON, slots=5_000)
    for key in entries("t", 240):
        scene.vpod(key.partition("/")[2], 1, {"a-0": 1}, actor=PERSON)
    told = ("1 vreplica moved from a-0 to a-1 (Drain)", "")
    for key in entries("t", 20):
        scene.vpod(key.partition("/")[2], 1, {"a-1": 1}, moved=told)
    scene.pod("a-0", {}, actor=PERSON, slots=5_000, node="")
    await later(ago_s)
    scene.found.clear()
    scene.pod("a-0", entries("t", 240), slots=5_000)
    assert len([line for line in scene.found if "bytes of t on a-0" in line]) == wrong


@pytest.mark.parametrize(("exist", "wrong"), [(True, 1), (False, 0)])
@in_virtual_time
async def test_of_what_comes_with_a_bind_the_vpods_that_are_gone_do_not_count(
    exist: bool, wrong: int
):
    """A replica whose watch is behind knows what they published."""
    scene = CheckerScene()
    scene.pool("a", slots=5_000)
    scene.pod("a-0", {}, actor=PERSON, slots=5_000, node="")
    for key in entries("t", 240) if exist else {}:
        scene.vpod(key.partition("/")[2], 1, {"a-0": 1}, actor=PERSON)
    assert not [line for line in scene.found if "bytes" in line]
    scene.pod("a-0", entries("t", 240), slots=5_000)
    assert len([line for line in scene.found if "bytes of t on a-0" in line]) == wrong


def test_a_pod_has_bytes_for_whom_the_service_finds_some():
    assert facts.LEDGER_BYTES_MAX == names.LEDGER_BYTES_MAX
    assert (facts.SHARE_BYTES_MAX, facts.ENTRY_BYTES_MAX) == (
        claims.SHARE_BYTES_MAX,
        claims.ENTRY_BYTES_MAX,
    )


def cpu(vreplicas: int, each: int) -> dict[str, list[object]]:
    return {"t/a": [vreplicas, 1, {"cpu": each}]}


@pytest.mark.parametrize(
    ("ledger", "wrong"),
    [
        pytest.param(cpu(2, 4), 0, id="as much as the pod has"),
        pytest.param(cpu(3, 3), 1, id="more than the pod has"),
        pytest.param({"t/a": [9, 1, {"gpu": 9}]}, 0, id="a dimension that the pool lacks"),
    ],
)
@in_virtual_time
async def test_a_ledger_over_a_dimension_is_a_violation(ledger, wrong):
    scene = CheckerScene()
    scene.pool("a", slots=20, capacities={"cpu": 8})
    scene.pod("a-0", {}, actor=PERSON, slots=20)
    scene.pod("a-0", ledger, slots=20)
    assert len([line for line in scene.found if line.startswith("I1: ")]) == wrong


@in_virtual_time
async def test_a_ledger_over_a_lowered_dimension_may_stay_and_become_less():
    scene = CheckerScene()
    scene.pool("a", slots=20, capacities={"cpu": 8})
    scene.pod("a-0", cpu(9, 2), actor=PERSON, slots=20)
    assert not scene.found
    scene.pod("a-0", cpu(8, 2), slots=20)
    assert not [line for line in scene.found if line.startswith("I1: ")]


@pytest.mark.parametrize(
    ("limits", "count", "wrong"),
    [
        pytest.param((2,), 2, 0, id="the limit"),
        pytest.param((2,), 3, 1, id="more"),
        pytest.param((3, 2), 3, 0, id="the limit of a moment ago"),
        pytest.param((0, 2), 9, 0, id="none a moment ago"),
        pytest.param((2, 0), 9, 0, id="none since a moment ago"),
    ],
)
@in_virtual_time
async def test_a_pod_that_gets_more_of_a_vpod_than_its_max_per_pod_is_a_violation(
    limits, count, wrong
):
    scene = a_scene()
    for generation, limit in enumerate(limits, 1):
        spec = {"poolRef": {"name": "a"}, "vreplicas": 9, "placement": {"maxPerPod": limit}}
        metadata = {"namespace": "t", "name": "v", "uid": "v", "generation": generation}
        scene.write("vpods", "v", {"metadata": metadata, "spec": spec}, PERSON)
    scene.pod("a-0", {"t/v": count}, slots=5_000)
    assert len([line for line in scene.found if "placement:" in line]) == wrong
