"""I7: what the service writes of a planned move is compared with what adapters really serve."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from extender.lab.clock import wall_clock
from extender.lab.simulation.world.adapters import Served, SimulatedAdapter
from extender.lab.simulation.world.facts import ACKNOWLEDGED, ASSIGNMENT, EVICTING
from extender.model.eviction import Eviction, encode_eviction
from extender.model.moves import MoveReason
from tests.simulation.checker_scene import (
    PERSON,
    REPLICA,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
    stamp,
)

pytestmark = pytest.mark.sim

KEY: Final = "t/v"
LATE_S: Final = 61.0
"""After so long nothing counts as seen too late."""


class HandoverScene(CheckerScene):
    """A pool whose pods a-0, a-1 and a-2 are Ready and have acknowledged. ``adapters``: by pod."""

    def __init__(self, mode: str = "Overlap", **circumstances: Any) -> None:
        self.adapters = {f"a-{i}": SimulatedAdapter("1", 0.1, "", False) for i in range(3)}
        super().__init__(adapter=self.adapters.get, **circumstances)
        self.pool(ordinals=3, handoff={"mode": mode})
        self.write("nodes", "n", {"metadata": {"name": "n"}, "spec": {}, "status": READY}, PERSON)

    def tell(
        self,
        name: str,
        ledger: Mapping[str, int],
        *,
        told: str = "Serve",
        deadline: str = "",
        said: bool = True,
        ready: bool = True,
        actor: str = REPLICA,
        **metadata: Any,
    ) -> None:
        """Write a pod that is told ``told`` of its ledger's shares, and ``said`` something once."""
        share = {"weight": 1, "of": 2, "epoch": 7, "state": told, "deadline": deadline}
        shares = {key: {"vreplicas": count, **share} for key, count in ledger.items()}
        self.assign(name, ledger, shares, said=said, ready=ready, actor=actor, **metadata)

    def assign(
        self,
        name: str,
        ledger: Mapping[str, int],
        shares: Mapping[str, Any],
        *,
        said: bool = True,
        ready: bool = True,
        actor: str = REPLICA,
        **metadata: Any,
    ) -> None:
        """Write a pod with a ledger and the shares of an assignment."""
        obj = pod_object(name, ledger, slots=8)
        obj["metadata"].update(metadata)
        document = {"generation": 1, "pod": f"n/{name}", "uid": "1", "shares": shares}
        obj["metadata"]["annotations"][ASSIGNMENT] = json.dumps(document)
        if said:
            obj["metadata"]["annotations"][ACKNOWLEDGED] = '{"generation": 1, "serving": 1}'
        self.write("pods", name, {**obj, "status": READY if ready else {}}, actor)

    def gaps(self) -> list[str]:
        """What is found of hand-overs."""
        words = ("adapters there are prepared", "told to drain", "leaves the ledger")
        return [line for line in self.found if any(word in line for word in words)]


READY: Final[Mapping[str, Any]] = {"conditions": [{"type": "Ready", "status": "True"}]}


async def a_vpod_on_a_0(scene: HandoverScene, vreplicas: int = 2, **pod: Any) -> None:
    """It is served there for a while, and its next pods' ledgers have it already."""
    scene.adapters["a-0"].serving = {KEY: Served(vreplicas)}
    scene.tell("a-0", {KEY: vreplicas}, **pod)
    for name in ("a-1", "a-2"):
        scene.tell(name, {KEY: vreplicas}, told="Prepare")
    scene.vpod("v", vreplicas, {})
    scene.vpod("v", vreplicas, {"a-0": vreplicas})
    await later(LATE_S)
    assert scene.gaps() == []


STATUSES = [
    pytest.param({"a-1": 2}, {"a-1"}, "", id="the new adapter is prepared"),
    pytest.param({"a-1": 2}, set(), "prepared for 0 of 2", id="the new adapter is not prepared"),
    pytest.param({"a-1": 2}, {"a-2"}, "prepared for 0 of 2", id="another one is prepared"),
    pytest.param({"a-1": 1, "a-2": 1}, {"a-1"}, "prepared for 1 of 2", id="one of two is prepared"),
    pytest.param({"a-0": 1, "a-1": 1}, set(), "prepared for 0 of 1", id="a part of it moves"),
    pytest.param({"a-0": 2, "a-1": 1}, set(), "", id="it only grows"),
]


@pytest.mark.parametrize(("placements", "prepared", "finding"), STATUSES)
def test_a_status_that_moves_what_is_served_waits_for_the_new_adapters(
    placements: dict[str, int], prepared: set[str], finding: str
):
    @in_virtual_time
    async def play() -> None:
        scene = HandoverScene()
        await a_vpod_on_a_0(scene)
        for name in prepared:
            scene.adapters[name].prepared.add(KEY)
        scene.vpod("v", sum(placements.values()), placements)
        assert [finding in line for line in scene.gaps()] == ([True] if finding else [])

    play()


@in_virtual_time
async def test_an_adapter_that_serves_some_already_is_ready_for_more():
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.adapters["a-1"].serving = {KEY: Served(1)}
    scene.vpod("v", 2, {"a-1": 2})
    assert scene.gaps() == []
    assert scene.checkers.handovers.checked == 1


@in_virtual_time
async def test_what_a_vpod_gives_up_is_no_gap():
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.vpod("v", 1, {"a-0": 1})
    assert scene.gaps() == []
    assert scene.checkers.handovers.checked == 1


NOT_COUNTED = [
    pytest.param({"mode": "None"}, {}, {}, id="the pool hands nothing over"),
    pytest.param({"two_lead": lambda: True}, {}, {}, id="two replicas lead"),
    pytest.param({}, {"never": "Drain"}, {}, id="its adapter is stuck"),
    pytest.param({}, {"silent": True}, {}, id="its adapter is silent"),
    pytest.param({}, {"delay_s": 20.0}, {}, id="its adapter takes long"),
    pytest.param({}, {"takes_s": 20.0}, {}, id="its adapter takes long for what it began"),
    pytest.param({}, {"serving": {}}, {}, id="its adapter does not serve it"),
    pytest.param({}, {"uid": "2"}, {}, id="its adapter is another pod's"),
    pytest.param({}, {}, {"said": False}, id="its adapter has never acknowledged"),
    pytest.param({}, {}, {"ready": False}, id="its pod is not Ready"),
    pytest.param({}, {}, {"deletionTimestamp": "2030-01-01T00:00:00Z"}, id="its pod is deleted"),
]


@pytest.mark.parametrize(("circumstances", "adapter", "pod"), NOT_COUNTED)
def test_who_does_not_serve_by_the_contract_is_not_waited_for(
    circumstances: dict[str, Any], adapter: dict[str, Any], pod: dict[str, Any]
):
    """The same move is found where all of them keep it."""

    @in_virtual_time
    async def play(*, keeps: bool) -> None:
        scene = HandoverScene(**({} if keeps else circumstances))
        await a_vpod_on_a_0(scene, **({} if keeps else pod))
        for name, value in () if keeps else adapter.items():
            setattr(scene.adapters["a-0"], name, value)
        scene.vpod("v", 2, {"a-1": 2})
        assert len(scene.gaps()) == keeps

    play(keeps=True)
    play(keeps=False)


@in_virtual_time
async def test_a_pod_that_has_just_become_ready_may_not_be_known_to_serve():
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.tell("a-0", {KEY: 2}, ready=False, actor=PERSON)
    scene.tell("a-0", {KEY: 2}, actor=PERSON)
    scene.vpod("v", 2, {"a-1": 2})
    assert scene.gaps() == []


@in_virtual_time
async def test_a_status_of_a_person_is_not_the_services():
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.vpod("v", 2, {"a-1": 2}, actor=PERSON)
    assert scene.gaps() == []


DRAINS = [
    pytest.param({KEY: Served(2)}, "", 1.0, "Drain", False, id="the new pod serves it"),
    pytest.param({}, "", 1.0, "Drain", True, id="the new pod does not serve it yet"),
    pytest.param({}, "", 31.0, "Drain", False, id="the new pod had its time to begin"),
    pytest.param({}, "Serve", 1.0, "Drain", False, id="the new pod's adapter is stuck"),
    pytest.param({}, "", 1.0, "Serve", False, id="the old pod is not told to let go"),
]


@pytest.mark.parametrize(("serving", "never", "after_s", "told", "is_found"), DRAINS)
def test_an_adapter_is_told_to_let_go_once_the_published_pods_serve(
    serving: dict[str, Served], never: str, after_s: float, told: str, is_found: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = HandoverScene()
        await a_vpod_on_a_0(scene)
        scene.adapters["a-1"].prepared, scene.adapters["a-1"].never = {KEY}, never
        scene.vpod("v", 2, {"a-1": 2})
        scene.tell("a-1", {KEY: 2})
        await later(after_s)
        scene.adapters["a-1"].serving = serving
        scene.tell("a-0", {KEY: 2}, told=told)
        line = f"a-0 is told to drain {KEY}, and a-1 does not serve it yet"
        assert scene.gaps() == ([line] if is_found else [])

    play()


@pytest.mark.parametrize(
    ("indexes", "is_found"),
    [
        pytest.param("2-3", False, id="the vpod has none of them any more"),
        pytest.param("1-2", True, id="the new pod does not serve one of them yet"),
    ],
)
def test_what_is_let_go_waits_for_its_own_indexes(indexes: str, is_found: bool):
    """The vpod is smaller, and has 0 and 1 (seed 31000039)."""

    @in_virtual_time
    async def play() -> None:
        scene = HandoverScene()
        await a_vpod_on_a_0(scene)
        share = {"vreplicas": 2, "weight": 1, "of": 4, "epoch": 7, "indexes": indexes}
        scene.adapters["a-1"].prepared = {KEY}
        scene.assign("a-0", {KEY: 2}, {KEY: {**share, "state": "Serve"}})
        scene.vpod("v", 2, {"a-1": 2})
        scene.assign("a-1", {KEY: 2}, {KEY: {**share, "state": "Serve", "indexes": "0-1"}})
        await later(1.0)
        scene.assign("a-0", {KEY: 2}, {KEY: {**share, "state": "Drain"}})
        line = f"a-0 is told to drain {KEY}, and a-1 does not serve it yet"
        assert scene.gaps() == ([line] if is_found else [])

    play()


@pytest.mark.parametrize("after_s", [1.0, LATE_S])
def test_what_a_deleted_vpod_has_left_is_not_handed_over_to_its_namesake(after_s: float):
    """Seed 600000090 (500 events). What the namesake has published for long is another matter."""

    @in_virtual_time
    async def play() -> None:
        scene = HandoverScene()
        scene.adapters["a-0"].serving = {KEY: Served(2)}
        scene.tell("a-0", {KEY: 2})
        scene.tell("a-1", {})
        await later(LATE_S)
        scene.vpod("v", 2, {})
        scene.vpod("v", 2, {"a-1": 2})
        await later(after_s)
        scene.tell("a-1", {KEY: 2})
        scene.tell("a-0", {KEY: 2}, told="Drain")
        assert bool(scene.gaps()) == (after_s == LATE_S)

    play()


AT_S = 2 * LATE_S
"""When the ledger loses the share, in the run's time."""
REMOVALS = [
    pytest.param("Overlap", {}, "Drain", AT_S + 60, False, id="the adapter has let go"),
    pytest.param("Overlap", {KEY: Served(2)}, "Drain", AT_S + 60, True, id="it has not"),
    pytest.param("Overlap", {KEY: Served(2)}, "Drain", AT_S, False, id="its deadline has come"),
    pytest.param(
        "Overlap", {KEY: Served(2)}, "Drain", AT_S + 4, False, id="by another leader's clock"
    ),
    pytest.param("Overlap", {KEY: Served(2)}, "Serve", None, True, id="it is not told to let go"),
    pytest.param("None", {KEY: Served(2)}, "Serve", None, False, id="the pool hands nothing over"),
]


@pytest.mark.parametrize(("mode", "serving", "told", "deadline_s", "is_found"), REMOVALS)
def test_a_ledger_keeps_a_share_until_its_adapter_lets_go(
    mode: str, serving: dict[str, Served], told: str, deadline_s: float | None, is_found: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = HandoverScene(mode)
        scene.adapters["a-0"].serving = {KEY: Served(2)}
        deadline = stamp(deadline_s) if deadline_s is not None else ""
        scene.tell("a-0", {KEY: 2}, told=told, deadline=deadline)
        await later(2 * LATE_S)
        scene.adapters["a-0"].serving = serving
        share = {"vreplicas": 2, "weight": 1, "of": 2, "epoch": 7, "state": told}
        scene.assign("a-0", {}, {KEY: {**share, "deadline": deadline}})
        line = f"{KEY} leaves the ledger of a-0, whose adapter serves it"
        assert scene.gaps() == ([line] if is_found else [])

    play()


@in_virtual_time
async def test_a_share_that_its_adapter_was_never_told_is_nobodys():
    scene = HandoverScene()
    scene.adapters["a-0"].serving = {KEY: Served(2)}
    scene.assign("a-0", {KEY: 2}, {})
    await later(LATE_S)
    scene.assign("a-0", {}, {})
    assert scene.gaps() == []


def evicted(scene: HandoverScene) -> list[str]:
    """What is found when the service evicts a-0, whose ledger is empty."""
    obj = pod_object("a-0", {}, slots=8)
    mark = Eviction(wall_clock(), wall_clock(), MoveReason.ROLLOUT)
    obj["metadata"]["annotations"][EVICTING] = encode_eviction(mark, "1")
    obj["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    scene.write("pods", "a-0", {**obj, "status": READY}, REPLICA)
    return [line for line in scene.found if "is evicted (Rollout)" in line]


@in_virtual_time
async def test_a_rollout_evicts_no_pod_whose_adapter_serves():
    scene = HandoverScene()
    scene.tell("a-0", {})
    scene.adapters["a-0"].serving = {KEY: Served(2)}
    (finding,) = evicted(scene)
    assert KEY in finding


@in_virtual_time
async def test_what_a_person_has_taken_out_of_the_ledger_holds_no_eviction_up():
    """Seed 60000162."""
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.pod("a-0", "{oops", slots=8, actor=PERSON)
    assert evicted(scene) == []


@in_virtual_time
async def test_a_share_that_was_taken_away_at_its_deadline_holds_no_eviction_up():
    """Seed 238316643: an adapter that was cut off had not heard that it was to let go."""
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.vpod("v", 2, {})
    scene.tell("a-0", {KEY: 2}, told="Drain", deadline=stamp(scene.checkers._clock()))
    scene.tell("a-0", {})
    assert evicted(scene) == []


@in_virtual_time
async def test_a_share_that_was_taken_away_at_its_deadline_may_come_back_and_go_again():
    """Seed 510000099 (500 events): the adapter still served what it had not let go in time."""
    scene = HandoverScene()
    await a_vpod_on_a_0(scene)
    scene.vpod("v", 2, {})
    scene.tell("a-0", {KEY: 2}, told="Drain", deadline=stamp(scene.checkers._clock()))
    scene.tell("a-0", {})
    scene.tell("a-0", {KEY: 2}, told="Prepare")
    await later(2 * LATE_S)
    found = len(scene.gaps())
    scene.tell("a-0", {})
    assert len(scene.gaps()) == found


@in_virtual_time
async def test_an_adapter_whose_lease_has_run_out_serves_nothing():
    scene = HandoverScene(mode="Exclusive")
    scene.tell("a-0", {}, actor=PERSON)
    adapter = scene.adapters["a-0"]
    adapter.serving, adapter.told = {KEY: Served(2)}, {"leaseSeconds": 5}
    assert evicted(scene) == []
