"""How long the leader remembers a vpod of a caller that has given everything back."""

import pytest

from extender.engine.cache.caches import VPodAssumeCache
from extender.model.bucket import Bucket
from extender.model.objects import Source, SourcePaths, VPod
from extender.service.watching.external_vpods import ExternalVPods
from tests.support.builders import Scene, a_pool, a_vpod

SOURCE = "broker.example.dev"
KEY = f"tenant/a@{SOURCE}"
BROKERS = Source(
    group="example.dev",
    versions=("v1",),
    resource="brokers",
    kind="Broker",
    paths=SourcePaths(vreplicas=("spec", "replicas"), placements=("status", "placements")),
    write_status=False,
)


def give_back(scene: Scene) -> ExternalVPods:
    external = ExternalVPods(scene.state, VPodAssumeCache())
    vpod = a_vpod("a", 0, source="broker.example.dev")
    external.ask(vpod)
    external.note_answer(vpod, {})
    return external


@pytest.mark.parametrize(
    ("scene", "remembered"),
    [
        pytest.param(Scene(replicas=1).pod(0), False, id="all pods are bound and hold none of it"),
        pytest.param(Scene(replicas=1).pod(0, {KEY: 1}), True, id="a pod holds some of it"),
        pytest.param(Scene(replicas=2).pod(0), True, id="an ordinal has no pod"),
        pytest.param(
            Scene(replicas=2).pods(0).pod(1, {KEY: 1}).stateful_set(1).no_pod(1),
            True,
            id="an ordinal has gone with its pod, and may come back with it (seed 67193689)",
        ),
    ],
)
def test_a_vpod_that_gave_all_back_is_remembered_while_a_pod_may_bring_some_back(scene, remembered):
    assert (KEY in give_back(scene)) is remembered


def test_who_asks_again_is_not_forgotten_for_what_was_given_back_before():
    """Found by review: the request was dropped while its answer was under way, and nothing sized
    the pool for it.
    """
    scene = Scene(replicas=1)
    external = give_back(scene)
    again = a_vpod("a", 30, source="broker.example.dev")
    external.ask(again)
    scene.pod(0)
    external.forget_given_back()
    external.note_answer(again, {})
    assert KEY in external
    assert list(scene.pool.vpods_with_pending) == [KEY]


def test_it_is_forgotten_with_what_the_gone_ordinal_held():
    scene = Scene(replicas=2).pods(0).pod(1, {KEY: 1}).stateful_set(1).no_pod(1)
    external = give_back(scene)
    scene.state.expire(100.0)
    scene.state.expire(120.0)
    external.forget_given_back()
    assert KEY not in external


class Both:
    """An object that a source with ``writeStatus: false`` shows, and that is asked about."""

    def __init__(self) -> None:
        self.scene = Scene().pods(0, 1)
        self.declare(True)
        self.watched = VPodAssumeCache()
        self.external = ExternalVPods(self.scene.state, self.watched)
        self.told: list[str] = []
        self.external.on_forgotten = self.told.append

    def declare(self, declared: bool) -> None:
        new = a_pool(sources=(BROKERS,) if declared else ())
        self.scene.state.adapter_pool_changed(self.scene.pool.adapter_pool, new)

    def show(self, version: int, vreplicas: int, placements: dict[int, int]) -> VPod:
        vpod = a_vpod(
            "a", vreplicas, placements, source=SOURCE, uid="u", resource_version=f"{version}"
        )
        self.watched.update(vpod)
        return vpod

    def ask(self, vreplicas: int, placements: dict[int, int], answer: dict[int, int]) -> None:
        vpod = a_vpod("a", vreplicas, placements, source=SOURCE)
        self.external.ask(vpod)
        self.external.note_answer(vpod, a_vpod("a", 1, answer).placements)

    @property
    def counted(self) -> tuple[int, dict[str, int]] | None:
        """(vreplicas wanted, what counts as published)."""
        vpod = self.scene.pool.vpods.get(KEY)
        published = {
            name: claim.published
            for name, claim in self.scene.pool.claims_of(KEY).items()
            if claim.published
        }
        if vpod is None:
            assert not published
            return None
        assert dict(vpod.placements) == published
        return (vpod.vreplicas, published)


class TestAWatchedObjectThatIsAskedAbout:
    def test_an_event_after_the_answer_takes_nothing_of_it_away(self):
        """Found by review: the watch's form replaced the answer, and the ledger was lowered below
        what the caller then published (I2).
        """
        both = Both()
        both.show(1, 3, {})
        both.ask(3, {}, answer={0: 2, 1: 1})
        both.show(2, 4, {})
        assert both.counted == (4, {"dispatcher-0": 2, "dispatcher-1": 1})

    def test_once_the_answer_is_published_nothing_else_counts(self):
        both = Both()
        both.show(1, 3, {0: 3})
        both.ask(2, {0: 3}, answer={1: 2})
        assert both.counted == (2, {"dispatcher-0": 3, "dispatcher-1": 2})
        both.show(2, 2, {1: 2})
        assert both.counted == (2, {"dispatcher-1": 2})
        both.show(3, 2, {})
        assert both.counted == (2, {"dispatcher-1": 2}), "the caller was told that"

    def test_an_object_that_shows_the_answer_before_answers_nothing_that_is_asked_now(self):
        both = Both()
        both.ask(2, {}, answer={0: 2})
        asked = a_vpod("a", 3, {}, source=SOURCE)
        both.external.ask(asked)
        both.show(2, 2, {0: 2})
        both.external.note_answer(asked, a_vpod("a", 1, {1: 3}).placements)
        assert both.counted == (3, {"dispatcher-0": 2, "dispatcher-1": 3})

    def test_what_a_request_does_not_say_counts_while_the_object_says_it(self):
        both = Both()
        both.show(1, 3, {0: 3})
        both.ask(3, {}, answer={1: 3})
        assert both.counted == (3, {"dispatcher-0": 3, "dispatcher-1": 3})
        watched = both.external.as_watched(KEY)
        assert watched is not None
        assert watched.uid == "u"
        assert both.counted == (3, dict(watched.placements))

    def test_a_pool_that_no_longer_declares_the_kind_leaves_it_to_the_caller(self):
        """Found by review: the ledgers of all its objects were freed, which their callers publish
        (I2).
        """
        both = Both()
        vpod = both.show(1, 3, {0: 3})
        both.ask(3, {0: 3}, answer={0: 3})
        both.declare(False)
        both.watched.delete(vpod)
        assert both.counted == (3, {"dispatcher-0": 3})
        assert both.told == []

    def test_one_that_is_deleted_is_forgotten(self):
        both = Both()
        vpod = both.show(1, 3, {0: 3})
        both.ask(3, {0: 3}, answer={0: 3})
        both.watched.delete(vpod)
        assert both.counted is None
        assert (KEY in both.external, both.told) == (False, [KEY])

    def test_after_another_has_led_the_object_counts_alone(self):
        """Found by review: the state lost the object until its next event."""
        both = Both()
        both.show(1, 3, {0: 3})
        both.ask(3, {0: 3}, answer={1: 3})
        both.external.forget(Bucket())
        assert both.counted == (3, {"dispatcher-0": 3})

    def test_two_pools_are_two_claims(self):
        both = Both()
        both.show(1, 3, {0: 3})
        other = a_vpod("a", 3, {}, source=SOURCE, pool="knative-eventing/other")
        both.external.ask(other)
        both.external.note_answer(other, {"other-0": 3})
        assert both.counted == (3, {"dispatcher-0": 3})
        assert both.external.as_watched(KEY) is None
