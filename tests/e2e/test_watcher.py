"""The watcher finds what it is for: each invariant broken once, in the middle of a history that
ends well.
"""

import itertools
from typing import Any

import pytest

from extender.kube.api import PODS, STATEFULSETS, VPODS, ListOptions, ListPage, Obj, Resource
from extender.model.moves import MoveReason
from extender.model.names import PLACEMENTS_ANNOTATION, POOL_LABEL
from tests.e2e.watcher import Version, Watcher

NS, TENANT = "adapters", "tenant"


class Nothing:
    """An API server that holds nothing any more: the watcher has seen all there was."""

    async def list_page(self, resource: Resource, options: ListOptions, **_: Any) -> ListPage:
        return ListPage([], "1")


class History:
    """Versions in the order in which they were stored."""

    def __init__(self) -> None:
        self.watcher = Watcher(Nothing(), slots_per_pod=20)  # type: ignore[arg-type]
        self._numbers = itertools.count(1)

    def pod(self, ordinal: int, ledger: str | None, *, node: str = "n", gone: bool = False) -> None:
        metadata: Obj = {
            "name": f"d-{ordinal}",
            "namespace": NS,
            "uid": "u",
            "labels": {POOL_LABEL: "d"},
        }
        if ledger is not None:
            metadata["annotations"] = {PLACEMENTS_ANNOTATION: ledger}
        self._add(PODS, {"metadata": metadata, "spec": {"nodeName": node} if node else {}}, gone)

    def vpod(
        self,
        wanted: int,
        *,
        generation: int = 1,
        gone: bool = False,
        moved: str = "",
        **placed: int,
    ) -> None:
        """``moved``: "REASON MESSAGE" of its Moved condition."""
        placements = [
            {"podName": name.replace("_", "-"), "vreplicas": count}
            for name, count in placed.items()
        ]
        status: Obj = {"placements": placements, "observedGeneration": generation}
        if moved:
            reason, _, message = moved.partition(" ")
            status["conditions"] = [
                {"type": "Moved", "status": "True", "reason": reason, "message": message}
            ]
        obj = {
            "metadata": {"name": "a", "namespace": TENANT, "uid": "v", "generation": generation},
            "spec": {"poolRef": {"namespace": NS, "name": "d"}, "vreplicas": wanted},
            "status": status,
        }
        self._add(VPODS, obj, gone)

    def stateful_set(self, replicas: int, *, start: int = 0, gone: bool = False) -> None:
        spec = {"replicas": replicas, "ordinals": {"start": start}}
        self._add(
            STATEFULSETS,
            {"metadata": {"name": "d", "namespace": NS, "uid": "s"}, "spec": spec},
            gone,
        )

    def _add(self, resource: Resource, obj: Obj, gone: bool) -> None:
        number = next(self._numbers)
        obj["metadata"]["resourceVersion"] = str(number)
        self.watcher.versions.append(Version(number, resource, obj, gone))


async def test_a_history_as_it_should_be_passes():
    history = History()
    history.vpod(8)
    history.pod(0, '{"tenant/a":8}')
    history.vpod(8, d_0=8)
    history.pod(0, '{"tenant/a":8}', gone=True)
    history.pod(0, "{}", node="")
    history.pod(0, '{"tenant/a":8}')
    history.vpod(3, generation=2, d_0=3)
    history.pod(0, '{"tenant/a":3}')
    history.vpod(3, generation=2, d_0=3, gone=True)
    await history.watcher.check()


async def test_a_ledger_over_its_slots_is_found_though_it_was_cut_at_once():
    history = History()
    history.pod(0, '{"tenant/a":21}')
    history.pod(0, '{"tenant/a":20}')
    with pytest.raises(
        AssertionError, match="I1: Pod adapters/d-0 at version 1 has a ledger of 21 slots"
    ):
        await history.watcher.check()


@pytest.mark.parametrize(
    "ledger",
    [
        pytest.param("{}", id="without the vpod"),
        pytest.param('{"tenant/a":7}', id="with less"),
        pytest.param(None, id="without a ledger"),
    ],
)
async def test_a_placement_that_no_ledger_covers_is_found_though_it_was_covered_at_once(
    ledger: str | None,
):
    history = History()
    history.pod(0, ledger)
    history.vpod(8, d_0=8)
    history.pod(0, '{"tenant/a":8}')
    with pytest.raises(AssertionError, match="I2: after VPod tenant/a at version 2"):
        await history.watcher.check()
    history.watcher.may_lack_ledger = True
    if ledger is None:
        await history.watcher.check()


async def test_a_ledger_that_drops_what_is_published_is_found():
    history = History()
    history.pod(0, '{"tenant/a":8}')
    history.vpod(8, d_0=8)
    history.pod(0, "{}")
    history.pod(0, '{"tenant/a":8}')
    with pytest.raises(AssertionError, match="I2: after Pod adapters/d-0 at version 3"):
        await history.watcher.check()


async def test_a_move_there_and_back_is_found():
    history = History()
    history.pod(0, '{"tenant/a":8}')
    history.pod(1, '{"tenant/a":8}')
    history.vpod(8, d_0=8)
    history.vpod(8, d_1=8)
    history.vpod(8, d_0=8)
    with pytest.raises(AssertionError, match="2 breaches, the first: I4"):
        await history.watcher.check()


async def test_giving_up_less_than_what_left_is_a_move():
    history = History()
    for ordinal in (0, 1):
        history.pod(ordinal, '{"tenant/a":8}')
    history.vpod(8, d_0=8)
    history.vpod(6, generation=2, d_0=4, d_1=2)
    with pytest.raises(AssertionError, match="moved 4 vreplicas where 2 were given up"):
        await history.watcher.check()


async def test_what_was_given_up_and_wanted_again_before_the_status_was_written_may_leave():
    history = History()
    history.pod(0, '{"tenant/a":8}')
    history.vpod(8, d_0=8)
    history.vpod(4, generation=2, d_0=8)
    history.watcher.versions[-1].object["status"]["observedGeneration"] = 1
    history.vpod(10, generation=3, d_0=4)
    history.watcher.versions[-1].object["status"]["observedGeneration"] = 2
    await history.watcher.check()


@pytest.mark.parametrize("reason", ["QuotaExceeded", "Preempted"])
async def test_what_a_vpod_may_no_longer_have_is_taken_and_nothing_is_moved_beside_it(reason: str):
    over_quota = {"type": "Scheduled", "status": "False", "reason": reason}
    rows: tuple[tuple[dict[str, int], bool], ...] = (
        ({"d_0": 5}, True),
        ({"d_0": 4, "d_1": 1}, False),
    )
    for placements, is_right in rows:
        history = History()
        for ordinal in (0, 1):
            history.pod(ordinal, '{"tenant/a":8}')
        history.vpod(8, d_0=8)
        history.vpod(8, generation=1, gone=False, moved="", **placements)
        history.watcher.versions[-1].object["status"]["conditions"] = [over_quota]
        if is_right:
            await history.watcher.check()
        else:
            with pytest.raises(AssertionError, match="moved 4 vreplicas where 3 were given up"):
                await history.watcher.check()


def moved_once(moved: str) -> History:
    history = History()
    for ordinal in (0, 1):
        history.pod(ordinal, '{"tenant/a":8}')
    history.vpod(8, d_0=8)
    history.vpod(8, d_0=5, d_1=3, moved=moved)
    return history


async def test_a_move_whose_reason_is_written_with_it_passes_where_the_scenario_expects_it():
    history = moved_once("Drain 3 vreplicas moved from d-0 to d-1 (Drain)")
    history.watcher.may_move = frozenset({MoveReason.DRAIN})
    await history.watcher.check()
    (move,) = await history.watcher.moves()
    assert (move.vpod, move.left, move.reason) == ("tenant/a", {"d-0": 3}, "Drain")


@pytest.mark.parametrize(
    ("moved", "found"),
    [
        pytest.param("", "reason not recorded", id="no reason"),
        pytest.param(
            "Policy 3 vreplicas moved from d-0 to d-1 (Policy)", "reason Policy", id="not expected"
        ),
        pytest.param(
            "Drain 3 vreplicas moved from d-7 to d-1 (Drain)",
            "reason not recorded",
            id="another pod",
        ),
    ],
)
async def test_a_move_without_a_reason_that_the_scenario_expects_is_found(moved: str, found: str):
    history = moved_once(moved)
    history.watcher.may_move = frozenset({MoveReason.DRAIN})
    with pytest.raises(AssertionError, match=found):
        await history.watcher.check()


async def test_the_reason_of_an_earlier_move_is_none_for_the_next():
    moved = "Drain 3 vreplicas moved from d-0 to d-1 (Drain)"
    history = moved_once(moved)
    history.vpod(8, d_1=8, moved=moved)
    history.watcher.may_move = frozenset({MoveReason.DRAIN})
    with pytest.raises(
        AssertionError, match="1 breaches, the first: I4: VPod tenant/a at version 5"
    ):
        await history.watcher.check()


@pytest.mark.parametrize(
    ("replicas", "start", "taken"),
    [
        pytest.param(1, 0, "d-1", id="the highest"),
        pytest.param(1, 1, "d-0", id="the lowest, by a new start"),
    ],
)
async def test_a_stateful_set_that_is_made_smaller_over_what_stands_there_is_found(
    replicas: int, start: int, taken: str
):
    history = History()
    history.stateful_set(2)
    history.pod(0, '{"tenant/a":5}')
    history.pod(1, '{"tenant/a":3}')
    history.vpod(8, d_0=5, d_1=3)
    history.stateful_set(replicas, start=start)
    with pytest.raises(
        AssertionError, match=rf"2 breaches(.|\n)*{taken} away, where(.|\n)*{taken} away, whose"
    ):
        await history.watcher.check()


async def test_a_stateful_set_may_shrink_where_nothing_stands_and_be_deleted_with_all_that_does():
    history = History()
    history.stateful_set(2)
    history.pod(0, '{"tenant/a":8}')
    history.pod(1, "{}")
    history.vpod(8, d_0=8)
    history.stateful_set(1)
    history.stateful_set(1, gone=True)
    history.stateful_set(0)
    await history.watcher.check()


async def test_what_is_stored_and_was_not_seen_fails_the_check(monkeypatch: pytest.MonkeyPatch):
    history = History()
    history.pod(0, "{}")
    obj = {"metadata": {"name": "d-0", "namespace": NS, "resourceVersion": "2"}}

    async def list_page(resource: Resource, options: ListOptions, **_: Any) -> ListPage:
        return ListPage([obj] if resource == PODS else [], "2")

    monkeypatch.setattr(history.watcher._api, "list_page", list_page)
    monkeypatch.setattr("tests.e2e.watcher.CAUGHT_UP_TIMEOUT_S", 0.1)
    with pytest.raises(TimeoutError, match="not seen: Pod adapters/d-0"):
        await history.watcher.check()
