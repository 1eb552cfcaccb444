"""The pods' and vpods' caches: one object's way from a decision through its write to the watch
echo.
"""

import pytest

from extender.engine.cache.caches import AdapterPodAssumeCache
from extender.model.errors import HistoryReplaced, NotFound, VersionConflict
from extender.model.objects import AdapterPod, VPod


def pod(
    version: int, *, name: str = "a-0", node: str = "", uid: str = "u", pool: str = "ns/p"
) -> AdapterPod:
    return AdapterPod(
        namespace="ns",
        name=name,
        uid=uid,
        resource_version=str(version),
        pool=pool,
        ordinal=0,
        node=node,
    )


def vpod(version: int, *, vreplicas: int = 1, pool: str = "ns/p") -> VPod:
    return VPod(
        namespace="t", name="v", resource_version=str(version), pool=pool, vreplicas=vreplicas
    )


class Changes(list[tuple[AdapterPod | None, AdapterPod | None]]):
    """A handler that keeps the changes."""

    def __call__(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        self.append((old, new))


@pytest.fixture
def pods() -> AdapterPodAssumeCache:
    cache = AdapterPodAssumeCache()
    cache.add(pod(5))
    return cache


@pytest.fixture
def changes(pods: AdapterPodAssumeCache) -> Changes:
    changes = Changes()
    pods.add_event_handler(changes)
    assert changes.pop() == (None, pod(5))
    return changes


def test_a_write_goes_from_assumed_to_written_to_its_echo(
    pods: AdapterPodAssumeCache, changes: Changes
) -> None:
    pods.assume(pod(5, node="n1"))
    assert pods.get("ns/a-0") == pod(5, node="n1")
    assert pods.written(pod(6, node="n1"))
    pods.update(pod(6, node="n1"))
    assert pods.get("ns/a-0") == pods.latest("ns/a-0") == pod(6, node="n1")
    assert changes[:2] == [(pod(5), pod(5, node="n1")), (pod(5, node="n1"), pod(6, node="n1"))]
    assert all(old == new for old, new in changes[2:])


def test_the_event_of_our_own_write_is_known_by_its_version_and_tells_nobody(
    pods: AdapterPodAssumeCache, changes: Changes
) -> None:
    assert pods.written(pod(6, node="n1"))
    changes.clear()
    assert pods.confirm("ns/a-0", "u", "6")
    assert pods.get("ns/a-0") == pods.latest("ns/a-0") == pod(6, node="n1")
    assert changes == []
    pods.assume(pod(6, node="n2"))
    pods.restore("ns/a-0")
    assert pods.get("ns/a-0") == pod(6, node="n1")


@pytest.mark.parametrize(
    ("key", "uid", "version"),
    [
        ("ns/a-0", "u", "7"),
        ("ns/a-0", "u", "4"),
        ("ns/a-0", "next", "5"),
        ("ns/a-0", "", "5"),
        ("ns/a-1", "u", "5"),
    ],
)
def test_only_an_event_of_the_newest_version_is_known(
    pods: AdapterPodAssumeCache, changes: Changes, key: str, uid: str, version: str
) -> None:
    assert not pods.confirm(key, uid, version)
    assert pods.get("ns/a-0") == pods.latest("ns/a-0") == pod(5)
    assert changes == []


def test_an_event_of_the_stored_version_leaves_what_is_assumed(pods: AdapterPodAssumeCache) -> None:
    pods.assume(pod(5, node="n1"))
    assert pods.confirm("ns/a-0", "u", "5")
    assert pods.get("ns/a-0") == pod(5, node="n1")


def test_a_failed_write_is_restored(pods: AdapterPodAssumeCache, changes: Changes) -> None:
    pods.assume(pod(5, node="n1"))
    pods.restore("ns/a-0")
    pods.restore("ns/a-0")
    pods.restore("unknown")
    assert pods.get("ns/a-0") == pod(5)
    assert changes[1:] == [(pod(5, node="n1"), pod(5))]


def test_what_is_written_is_not_restored(pods: AdapterPodAssumeCache) -> None:
    pods.written(pod(6, node="n1"))
    pods.restore("ns/a-0")
    assert pods.get("ns/a-0") == pod(6, node="n1")


def test_a_write_that_changed_nothing_ends_the_assumption_too(pods: AdapterPodAssumeCache) -> None:
    pods.assume(pod(5, node="n1"))
    assert pods.written(pod(5))
    assert pods.get("ns/a-0") == pod(5)


def test_the_watch_wins_over_an_assumption(pods: AdapterPodAssumeCache, changes: Changes) -> None:
    pods.assume(pod(5, node="n1"))
    pods.update(pod(6, node="n2"))
    pods.restore("ns/a-0")
    assert pods.get("ns/a-0") == pod(6, node="n2")
    assert changes[1:] == [(pod(5, node="n1"), pod(6, node="n2"))]


def test_a_decision_made_from_an_older_object_is_refused(pods: AdapterPodAssumeCache) -> None:
    pods.update(pod(6))
    with pytest.raises(VersionConflict):
        pods.assume(pod(5, node="n1"))
    with pytest.raises(NotFound):
        pods.assume(pod(5, name="a-1"))


def test_a_reply_that_the_watch_has_overtaken_changes_nothing(pods: AdapterPodAssumeCache) -> None:
    pods.update(pod(9))
    assert not pods.written(pod(8, node="n1"))
    pods.delete(pod(10))
    assert not pods.written(pod(11, node="n1"))
    assert pods.get("ns/a-0") is None


def test_another_incarnation_is_left_to_the_watch(
    pods: AdapterPodAssumeCache, changes: Changes
) -> None:
    assert not pods.written(pod(9, uid="next")), (
        "a reply would skip what the last one was at its end"
    )
    assert (pods.latest("ns/a-0"), changes) == (pod(5), [])


def test_the_late_delete_of_the_pod_before_leaves_the_new_one(pods: AdapterPodAssumeCache) -> None:
    pods.update(pod(9, uid="new"))
    pods.delete(pod(7, uid="u"))
    assert pods.get("ns/a-0") == pod(9, uid="new")


def test_a_relist_forgets_what_is_gone_and_keeps_what_was_written_since(changes: Changes) -> None:
    pods = AdapterPodAssumeCache()
    pods.add_event_handler(changes)
    for name, version in (("a-0", 5), ("a-1", 6), ("a-2", 7), ("a-3", 20)):
        pods.add(pod(version, name=name))
    pods.assume(pod(6, name="a-1", node="n1"))
    pods.written(pod(21, name="a-2", node="n1"))
    pods.replace([pod(9, name="a-1"), pod(7, name="a-2"), pod(10, name="a-4")], "15")
    assert sorted((item.name, item.resource_version) for item in pods.list()) == [
        ("a-1", "9"),
        ("a-2", "21"),
        ("a-3", "20"),
        ("a-4", "10"),
    ]
    assert (pod(5), None) in changes


def test_what_is_read_in_another_way_at_the_same_version_is_one_change(
    pods: AdapterPodAssumeCache, changes: Changes
) -> None:
    pods.reread(pod(5, node="n1"))
    assert changes == [(pod(5), pod(5, node="n1"))]
    with pytest.raises(VersionConflict):
        pods.reread(pod(4))
    with pytest.raises(NotFound):
        pods.reread(pod(5, name="a-1"))
    assert pods.latest("ns/a-0") == pod(5, node="n1")


def test_a_relist_of_unreadable_version_is_taken_at_its_word(pods: AdapterPodAssumeCache) -> None:
    pods.replace([], "?")
    assert (len(pods), "ns/a-0" in pods) == (0, False)


def test_a_list_that_has_an_older_version_than_was_seen_before_it_is_of_another_history(
    pods: AdapterPodAssumeCache,
) -> None:
    with pytest.raises(HistoryReplaced):
        pods.replace([pod(4)], "1000000004")


def test_our_own_write_after_a_list_was_taken_is_no_other_history(
    pods: AdapterPodAssumeCache,
) -> None:
    assert pods.written(pod(7, node="n1"))
    pods.replace([pod(5)], "6")
    assert pods.get("ns/a-0") == pod(7, node="n1")
