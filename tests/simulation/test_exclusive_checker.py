"""I6: what the checker of ``Exclusive`` pools finds when adapters serve more than is published."""

from typing import Final

import pytest

from extender.lab.simulation.checkers.exclusive import LATELY_S
from extender.lab.simulation.world.adapters import Served
from extender.lab.simulation.world.callers import CALLERS
from tests.simulation.checker_scene import CheckerScene, in_virtual_time, later

pytestmark = pytest.mark.sim

KEY: Final = "t/v"


def a_scene(mode: str = "Exclusive", **circumstances) -> CheckerScene:
    """Vpod t/v publishes two vreplicas on a-0."""
    scene = CheckerScene(**circumstances)
    scene.pool(handoff={"mode": mode, "leaseSeconds": 30})
    scene.pod("a-0", {KEY: 2})
    scene.pod("a-1", {KEY: 2})
    scene.vpod("v", 2, {"a-0": 2})
    assert scene.found == []
    return scene


def found(scene: CheckerScene, *served: tuple[str, Served], key: str = KEY) -> list[str]:
    """What is found when the last of ``served`` begins to serve beside the others."""
    scene.checkers.exclusive.served(served[-1][0], key, list(served))
    return scene.found


SERVED = [
    pytest.param((Served(2),), "", id="as many as it publishes"),
    pytest.param((Served(1), Served(1)), "", id="as many, on two pods"),
    pytest.param((Served(3),), "served 3 times", id="more on its own pod"),
    pytest.param((Served(2), Served(1)), "served 3 times", id="more on two pods"),
    pytest.param((Served(1, 0b01), Served(1, 0b10)), "", id="an index each"),
    pytest.param((Served(1, 0b10), Served(1, 0b10)), "served twice", id="the same index"),
]


@pytest.mark.parametrize(("served", "finding"), SERVED)
def test_what_adapters_serve_together(served: tuple[Served, ...], finding: str):
    @in_virtual_time
    async def play() -> None:
        pods = [(f"a-{ordinal}", one) for ordinal, one in enumerate(served)]
        told = found(a_scene(), *pods)
        assert [finding in line for line in told] == ([True] if finding else [])

    play()


@pytest.mark.parametrize(
    ("after_s", "is_found"),
    [
        pytest.param(LATELY_S - 1.0, False, id="it published them lately"),
        pytest.param(LATELY_S + 1.0, True, id="it published them long ago"),
    ],
)
def test_an_adapter_may_be_told_of_fewer_vreplicas_later(after_s: float, is_found: bool):
    @in_virtual_time
    async def play() -> None:
        scene = a_scene()
        scene.vpod("v", 1, {"a-0": 1})
        scene.checkers.violations.clear()
        await later(after_s)
        assert bool(found(scene, ("a-0", Served(2)))) is is_found

    play()


@in_virtual_time
async def test_in_another_mode_a_share_may_be_served_by_two():
    assert found(a_scene("Overlap"), ("a-0", Served(2)), ("a-1", Served(2))) == []


@in_virtual_time
async def test_after_a_restore_of_etcd_nothing_is_promised():
    scene = a_scene(restored=lambda: True)
    assert found(scene, ("a-0", Served(2)), ("a-1", Served(2))) == []


@in_virtual_time
async def test_vpods_of_callers_are_not_handed_over():
    assert found(a_scene(), ("a-0", Served(9)), key=f"t/v{CALLERS}") == []


@in_virtual_time
async def test_each_look_is_counted():
    scene = a_scene()
    found(scene, ("a-0", Served(2)))
    found(scene, ("a-0", Served(1)), ("a-1", Served(1)))
    assert scene.checkers.exclusive.checked == 2
