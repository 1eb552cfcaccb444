from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.core.ledger import Share, ledger_slots
from extender.core.model import VPod
from extender.core.node_level.standing import StandingPlacements


def vpod(
    name: str = "a",
    placements: dict[str, int] | None = None,
    *,
    pool: str = "ns/p",
    weight: int = 1,
    **more: Any,
) -> VPod:
    return VPod(
        namespace="t", name=name, pool=pool, vreplicas=99, weight=weight, placements=placements or {}, **more
    )


def standing(*vpods: VPod) -> StandingPlacements:
    result = StandingPlacements()
    for each in vpods:
        result.vpod_changed(None, each)
    return result


def test_a_returning_pod_gets_what_the_statuses_of_its_pools_vpods_say():
    index = standing(
        vpod("a", {"d-0": 3, "d-1": 2}),
        vpod("b", {"d-1": 1}, weight=4),
        vpod("c", {"d-1": 7}, pool="ns/other"),
    )
    assert index.ledger_for("ns/p", "d-1", slots=20) == {"t/a": Share(2), "t/b": Share(1, 4)}
    assert index.ledger_for("ns/p", "d-2", slots=20) == {}


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        pytest.param(9, {"t/a": Share(3), "t/b": Share(3, 2)}, id="everything fits exactly"),
        pytest.param(
            8, {"t/a": Share(3), "t/b": Share(2, 2)}, id="the last by key is cut to whole vreplicas"
        ),
        pytest.param(3, {"t/a": Share(3)}, id="the last by key gets nothing"),
        pytest.param(2, {"t/a": Share(2)}, id="the first by key is cut too"),
        pytest.param(0, {}, id="no slots"),
    ],
)
def test_never_more_than_the_pod_has_slots(slots, expected):
    index = standing(vpod("b", {"d-0": 3}, weight=2), vpod("a", {"d-0": 3}))
    assert index.ledger_for("ns/p", "d-0", slots=slots) == expected


def test_a_vpod_being_deleted_is_covered_until_its_status_is_gone():
    index = standing(vpod("a", {"d-0": 3}, deleting=True))
    assert index.ledger_for("ns/p", "d-0", slots=9) == {"t/a": Share(3)}
    index.vpod_changed(vpod("a", {"d-0": 3}), None)
    assert index.ledger_for("ns/p", "d-0", slots=9) == {}


def test_an_old_object_that_differs_from_what_was_counted_leaves_nothing_behind():
    index = standing(vpod("a", {"d-0": 3}))
    index.vpod_changed(vpod("a", {"d-7": 1}), vpod("a", {"d-1": 3}, pool="ns/q"))
    assert index.ledger_for("ns/p", "d-0", slots=9) == {}
    assert index.ledger_for("ns/q", "d-1", slots=9) == {"t/a": Share(3)}


VPODS = st.builds(
    vpod,
    st.sampled_from("abc"),
    st.dictionaries(st.sampled_from(["d-0", "d-1", "d-2"]), st.integers(0, 5)),
    pool=st.sampled_from(["ns/p", "ns/q"]),
    weight=st.integers(1, 4),
)


@given(st.lists(st.tuples(st.booleans(), VPODS), max_size=30), st.integers(0, 25))
def test_incremental_equals_rebuilt_and_fits(changes, slots):
    index = StandingPlacements()
    now: dict[str, VPod] = {}
    for gone, new in changes:
        old = now.pop(new.key, None)
        if not gone:
            now[new.key] = new
        index.vpod_changed(old, None if gone else new)
    rebuilt = standing(*now.values())
    for pool in ("ns/p", "ns/q"):
        for pod in ("d-0", "d-1", "d-2"):
            ledger = index.ledger_for(pool, pod, slots=slots)
            assert ledger == rebuilt.ledger_for(pool, pod, slots=slots)
            assert ledger_slots(ledger) <= slots
            published = {key: v.placements.get(pod, 0) for key, v in now.items() if v.pool == pool}
            assert all(0 < share.vreplicas <= published[key] for key, share in ledger.items())
