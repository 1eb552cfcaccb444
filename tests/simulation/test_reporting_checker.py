"""Decisions are reported: the replica that places a vpod for the first time writes an event, unless
something of its own is in the way.
"""

import asyncio
import random
from math import inf
from typing import Any

import pytest

from extender.kube.api import EVENTS, PODS, ApiError, Forbidden
from extender.lab.apiserver.cluster import Cluster
from extender.lab.clock import wall_clock
from extender.lab.faults import CALM, FaultRates, Faults, FaultyApi
from extender.lab.simulation.checkers.reporting import REPORTED_WITHIN_S
from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.world.profile import FaultProfile
from tests.simulation.checker_scene import PERSON, REPLICA, CheckerScene, in_virtual_time, later

pytestmark = pytest.mark.sim


def event(scene: CheckerScene, name: str, *, actor: str = REPLICA, number: int = 1) -> None:
    """An event about the vpod of that name."""
    obj = {"metadata": {"name": f"{name}.{number}", "namespace": "t"}, "regarding": {"uid": name}}
    scene.write("events", f"{name}.{number}", obj, actor)


async def places(scene: CheckerScene) -> None:
    """A vpod comes and is placed."""
    scene.pool()
    scene.pod("a-0", {"t/v": 2})
    obj = {
        "metadata": {"namespace": "t", "name": "v", "uid": "v", "generation": 1},
        "spec": {"poolRef": {"name": "a"}, "vreplicas": 2},
    }
    scene.write("vpods", "v", obj, PERSON)
    await later(30.0)
    scene.vpod("v", 2, {"a-0": 2})


async def found_later(scene: CheckerScene) -> list[str]:
    """What is found once it should have been reported."""
    await later(REPORTED_WITHIN_S + 1.0)
    scene.node("n", "z")
    return [line for line in scene.found if line.startswith("events")]


@in_virtual_time
async def test_a_vpod_that_was_placed_and_never_reported_is_found():
    scene = CheckerScene()
    await places(scene)
    assert await found_later(scene) == [
        f"events: {REPLICA} placed t/v at 30.000 s, and told nobody"
    ]


@in_virtual_time
async def test_one_that_was_reported_is_not():
    scene = CheckerScene()
    await places(scene)
    event(scene, "v")
    assert await found_later(scene) == []


@in_virtual_time
async def test_an_event_of_somebody_else_tells_nothing():
    scene = CheckerScene()
    await places(scene)
    event(scene, "v", actor="replica-2")
    assert len(await found_later(scene)) == 1


def failed(at: float, plural: str, name: str) -> dict[str, Any]:
    """The writer's last failed write of that object, or of events in that namespace."""

    def failed_at(_actor: str, *about: str) -> float:
        return at if about == (plural, name) else -inf

    return {"failed_at": failed_at}


@pytest.mark.parametrize(
    ("excuse", "excused"),
    [
        pytest.param(
            failed(31.0, "vpods", "v"),
            True,
            id="its status may not have been answered",
        ),
        pytest.param(
            failed(20.0, "vpods", "v"),
            True,
            id="it had given up the write of its status, which came late",
        ),
        pytest.param(
            failed(18.0, "vpods", "v"),
            False,
            id="a write of its status failed long before",
        ),
        pytest.param(
            failed(31.0, "events", "t"),
            True,
            id="events into its namespace fail",
        ),
        pytest.param(
            failed(31.0, "events", "u"),
            False,
            id="events into another namespace fail",
        ),
        pytest.param({"runs_since": lambda _: 31.0}, True, id="it was stopped"),
        pytest.param({"runs_since": lambda _: inf}, True, id="it is dead"),
        pytest.param({"runs_since": lambda _: 29.0}, False, id="it was stopped before"),
    ],
)
def test_what_excuses_silence(excuse, excused: bool):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene(**excuse)
        await places(scene)
        assert await found_later(scene) == (
            [] if excused else [f"events: {REPLICA} placed t/v at 30.000 s, and told nobody"]
        )

    play()


@pytest.mark.parametrize(
    ("renewals", "excused"),
    [
        pytest.param(1, True, id="it could not renew its lease any more"),
        pytest.param(15, False, id="it renewed its lease all the time"),
    ],
)
def test_a_leader_without_its_lease_is_excused_before_another_leads(renewals: int, excused: bool):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        await places(scene)
        for second in range(15):
            if second < renewals:
                lease = {"metadata": {"name": "lead"}, "spec": {"holderIdentity": REPLICA}}
                scene.write("leases", "lead", lease)
            await later(1.0)
        scene.node("n", "z")
        assert any(line.startswith("events") for line in scene.found) is not excused

    play()


async def a_process(faults: Faults) -> FaultyApi:
    return FaultyApi(Cluster(now=wall_clock, rng=random.Random(1)), faults, actor=REPLICA)


async def refused(api: FaultyApi, namespace: str) -> int:
    """The status by which an event is refused; 0 where it is not, but for what the event itself
    lacks.
    """
    try:
        await api.create(EVENTS, namespace, {"metadata": {"name": "e"}})
    except ApiError as error:
        return error.status if "injected" in str(error) else 0
    return 0


@in_virtual_time
async def test_events_of_one_namespace_are_refused_for_a_time_and_nothing_else_is():
    faults = Faults(random.Random(1), FaultRates())
    # CALM itself ends all faults; rates that are as low do not.
    assert faults.rates is not CALM
    api = await a_process(faults)
    faults.refuse_events("kube-system", 10.0, forbidden=False)
    assert [await refused(api, name) for name in ("kube-system", "default")] == [500, 0]
    assert api.failed_at_s["events", "kube-system"] == pytest.approx(0.0, abs=1.0)
    await api.list_page(PODS)
    await asyncio.sleep(10.0)
    assert await refused(api, "kube-system") == 0


@in_virtual_time
async def test_all_may_be_forbidden_and_calm_ends_it():
    faults = Faults(random.Random(1), FaultRates())
    api = await a_process(faults)
    faults.refuse_events("", 10.0, forbidden=True)
    with pytest.raises(Forbidden):
        await api.create(EVENTS, "default", {"metadata": {"name": "e"}})
    faults.rates = CALM
    assert await refused(api, "default") == 0


REFUSED = [
    Trial(seed, events=60, profile=FaultProfile({"eventsRefused": 0.06}, others="none"))
    for seed in range(1, 4)
]


@pytest.mark.timeout(120)
def test_events_are_refused_and_all_else_goes_on():
    outcomes = [simulate(trial) for trial in REFUSED]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(REFUSED)
    assert sum(outcome.faults["eventsRefused"] for outcome in outcomes) >= len(REFUSED)


@pytest.mark.parametrize(("before_s", "excused"), [(2.0, True), (20.0, False)])
def test_who_has_lost_its_lease_a_moment_before_may_stop_before_it_tells(
    before_s: float, excused: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        await later(30.0 - before_s)
        scene.write(
            "leases", "l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}, PERSON
        )
        came = {
            "metadata": {"namespace": "t", "name": "v", "uid": "v", "generation": 1},
            "spec": {"poolRef": {"name": "a"}, "vreplicas": 2},
        }
        scene.pool()
        scene.pod("a-0", {"t/v": 2})
        scene.write("vpods", "v", came, PERSON)
        await later(before_s)
        scene.vpod("v", 2, {"a-0": 2})
        assert (await found_later(scene) == []) is excused

    play()
