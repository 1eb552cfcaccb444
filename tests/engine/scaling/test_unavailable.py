"""Which pods may be taken out of service next, in pools with spec.handoff.maxUnavailable."""

import pytest

from extender.engine.scaling import unavailable as scaling_unavailable
from extender.engine.scaling.unavailable import UnavailablePods, next_turns
from extender.model.eviction import TURN_MAX_S, Eviction, encode_eviction
from extender.model.max_unavailable import MaxUnavailable, PodLimit
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, Handoff, HandoffMode
from tests.support.builders import Scene

NOW_S = 1_800_000_000.0
ALL = PodLimit(100, is_percentage=True)
TWO = MaxUnavailable(pool=PodLimit(2), per_vpod=ALL)


def a_scene(limits: MaxUnavailable = TWO, *, pods: int = 4, **ledgers) -> Scene:
    """A pool whose pods are Ready. ``ledgers``: p0={...} for dispatcher-0."""
    handoff = Handoff(mode=HandoffMode.OVERLAP, max_unavailable=limits)
    scene = Scene(replicas=pods, handoff=handoff)
    for ordinal in range(pods):
        scene.pod(ordinal, ledgers.get(f"p{ordinal}", {}), ready=True)
    return scene


def mark(
    scene: Scene,
    ordinal: int,
    *,
    ago_s: float = 10.0,
    latest_ago_s: float = 0.0,
    turn: bool = False,
    reason: MoveReason = MoveReason.EVICTED,
    ledger: dict[str, int] | None = None,
) -> None:
    turn_s = NOW_S - ago_s if turn else None
    eviction = Eviction(NOW_S - ago_s, NOW_S - latest_ago_s, reason, turn_s)
    text = encode_eviction(eviction, f"uid-{ordinal}")
    scene.pod(ordinal, ledger or {}, ready=True, evicting_text=text)


def changes(scene: Scene, *, fresh: bool = True) -> list[tuple[AdapterPod, Eviction]]:
    return next_turns(scene.pool, NOW_S, lambda _: fresh)


def turns(scene: Scene, *, fresh: bool = True) -> list[str]:
    return [pod.name for pod, mark in changes(scene, fresh=fresh) if mark.turn_s == NOW_S]


def test_evictions_get_their_turns_in_the_order_of_their_first_attempts():
    scene = a_scene()
    for ordinal, ago_s in ((0, 10.0), (1, 30.0), (2, 20.0)):
        mark(scene, ordinal, ago_s=ago_s)
    assert turns(scene) == ["dispatcher-1", "dispatcher-2"]


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda scene: mark(scene, 3, turn=True), id="it has its turn"),
        pytest.param(
            lambda scene: mark(scene, 3, reason=MoveReason.ROLLOUT), id="a rollout replaces it"
        ),
        pytest.param(lambda scene: scene.pod(3, {}, ready=False), id="it is not Ready"),
        pytest.param(
            lambda scene: scene.pod(3, {}, ready=True, deleting=True), id="it is terminating"
        ),
        pytest.param(lambda scene: scene.stateful_set(5), id="it does not exist"),
    ],
)
def test_a_pod_that_is_unavailable_for_any_reason_counts(take):
    scene = a_scene()
    take(scene)
    for ordinal in range(3):
        mark(scene, ordinal)
    assert turns(scene) == ["dispatcher-0"]


def test_an_eviction_that_has_waited_for_too_long_gets_its_turn_in_any_case():
    scene = a_scene()
    for ordinal in (2, 3):
        scene.pod(ordinal, {}, ready=False)
    mark(scene, 0, ago_s=TURN_MAX_S - 1)
    assert turns(scene) == []
    mark(scene, 0, ago_s=TURN_MAX_S)
    assert turns(scene) == ["dispatcher-0"]


def test_overdue_evictions_go_as_many_at_a_time_as_the_limit_and_pods_that_are_away_do_not_count():
    """Found by review: after half an hour, all that waited went at once."""
    scene = a_scene(pods=6)
    scene.no_pod(5)
    for ordinal in range(5):
        mark(scene, ordinal, ago_s=TURN_MAX_S + ordinal)
    assert turns(scene) == ["dispatcher-4", "dispatcher-3"]


def test_an_eviction_that_nobody_tries_any_more_gets_no_turn():
    scene = a_scene()
    mark(scene, 0)
    assert turns(scene, fresh=False) == []


def test_without_its_statefulset_a_pool_gives_no_turns():
    """Found by review: while it is made anew, all pods of the pool got theirs one by one, and
    nothing can be placed meanwhile.
    """
    scene = a_scene()
    scene.pool.set_pool(scene.pool.adapter_pool, None)
    mark(scene, 0)
    mark(scene, 1, ago_s=20)
    found = changes(scene)
    assert [(pod.name, eviction.queued) for pod, eviction in found] == [
        ("dispatcher-1", True),
        ("dispatcher-0", True),
    ]
    assert "StatefulSet does not exist" in found[0][1].behind


def test_maintenance_waits_for_its_turn_as_evictions_do():
    scene = a_scene(MaxUnavailable(pool=PodLimit(1)))
    mark(scene, 0, ago_s=20)
    mark(scene, 1, ago_s=30, reason=MoveReason.MAINTENANCE)
    assert turns(scene) == ["dispatcher-1"]
    mark(scene, 1, ago_s=30, reason=MoveReason.MAINTENANCE, turn=True)
    assert turns(scene) == []
    assert scene.pool.pods["dispatcher-1"].evicted is MoveReason.MAINTENANCE


def test_a_turn_does_not_begin_before_the_last_attempt_of_a_webhook_whose_clock_is_ahead():
    """Seed 777017: a leader whose clock was an hour behind gave a turn that was over already."""
    scene = a_scene()
    mark(scene, 0, latest_ago_s=-3600)
    ((_, eviction),) = changes(scene)
    assert eviction.turn_s == NOW_S + 3600


def test_an_eviction_that_has_to_wait_is_queued_once_and_again_when_the_reason_changes():
    scene = a_scene(MaxUnavailable(pool=PodLimit(1)))
    mark(scene, 0, turn=True)
    mark(scene, 1)
    ((pod, queued),) = changes(scene)
    assert (pod.name, queued.waits) == ("dispatcher-1", True)
    why = "unavailable ({}), and maxUnavailable.pool allows 1"
    assert queued.behind == "1 pod is " + why.format("dispatcher-0")
    scene.pod(1, {}, ready=True, evicting_text=encode_eviction(queued, "uid-1"))
    assert changes(scene) == []
    scene.pod(2, {}, ready=False)
    ((_, queued),) = changes(scene)
    assert queued.behind == "2 pods are " + why.format("dispatcher-0, dispatcher-2")


def test_a_reason_that_is_cut_is_written_once(monkeypatch):
    most = 20
    monkeypatch.setattr(scaling_unavailable, "BEHIND_CHARS_MAX", most)
    scene = a_scene(MaxUnavailable(pool=PodLimit(1)))
    mark(scene, 0, turn=True)
    mark(scene, 1)
    ((_, queued),) = changes(scene)
    assert len(queued.behind) == most
    text = encode_eviction(queued, "uid-1")
    scene.pod(1, {}, ready=True, evicting_text=text)
    assert changes(scene) == []


def test_a_pool_that_hands_nothing_over_gives_no_turns():
    scene = Scene(replicas=2)
    mark(scene, 0)
    assert turns(scene) == []


def test_a_pod_that_waits_for_its_turn_stays_as_it_is():
    scene = a_scene()
    mark(scene, 0)
    assert scene.pool.pods["dispatcher-0"].evicted is None
    assert scene.pool.pods["dispatcher-0"].schedulable


@pytest.mark.parametrize(
    ("limit", "turn"),
    [
        (ALL, "dispatcher-0"),
        (PodLimit(2), "dispatcher-0"),
        (PodLimit(1), "dispatcher-2"),
        (PodLimit(50, is_percentage=True), "dispatcher-2"),
    ],
)
def test_the_pods_of_one_vpod_have_a_limit_of_their_own(limit: PodLimit, turn: str):
    both = {"tenant/a": 1}
    scene = a_scene(MaxUnavailable(pool=PodLimit(2), per_vpod=limit), p0=both, p1=both)
    mark(scene, 1, turn=True, ledger=both)
    mark(scene, 0, ago_s=20, ledger=both)
    mark(scene, 2, ago_s=10)
    assert turns(scene) == [turn]


def test_why_a_pod_may_not_go_names_the_limit():
    both = {"tenant/a": 1}
    scene = a_scene(MaxUnavailable(pool=PodLimit(2), per_vpod=PodLimit(1)), p0=both, p1=both)
    unavailable = UnavailablePods(scene.pool)
    pods = scene.pool.pods
    unavailable.take(pods["dispatcher-0"])
    assert unavailable.why_not(pods["dispatcher-1"]) == (
        "unavailable: 1 of 2 pods (dispatcher-0) of a vpod there, and maxUnavailable.perVPod "
        "allows 1"
    )
    unavailable.take(pods["dispatcher-2"])
    assert unavailable.why_not(pods["dispatcher-3"]) == (
        "2 pods are unavailable (dispatcher-0, dispatcher-2), and maxUnavailable.pool allows 2"
    )


@pytest.mark.parametrize(
    ("limit", "pods", "most"),
    [
        (PodLimit(3), 1, 3),
        (PodLimit(10, is_percentage=True), 60, 6),
        (PodLimit(10, is_percentage=True), 61, 7),
        (PodLimit(1, is_percentage=True), 0, 1),
        (PodLimit(100, is_percentage=True), 7, 7),
    ],
)
def test_a_percentage_is_rounded_up_and_never_0(limit: PodLimit, pods: int, most: int):
    assert limit.of(pods) == most


def test_a_leader_that_has_given_a_turn_is_read_by_the_next_one():
    text = encode_eviction(Eviction(NOW_S, NOW_S + 9, turn_s=NOW_S + 4), "uid-0")
    scene = a_scene()
    scene.pod(0, {}, ready=True, evicting_text=text)
    assert scene.pool.pods["dispatcher-0"].evicted is MoveReason.EVICTED


def test_half_an_hour_changes_nothing_for_pods_that_hand_the_same_vpod_over():
    limits, shares = MaxUnavailable(pool=PodLimit(3), per_vpod=PodLimit(1)), {"tenant/a": 1}
    scene = a_scene(limits, pods=6, **{f"p{ordinal}": shares for ordinal in range(6)})
    mark(scene, 0, ago_s=60, turn=True, ledger=shares)
    for ordinal in (1, 2, 3):
        mark(scene, ordinal, ago_s=TURN_MAX_S + ordinal, ledger=shares)
    assert turns(scene) == []
