"""A replay's report: what it counts, and that it is the same twice."""

from collections.abc import Iterable
from typing import Any

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.whatif.recording.entries import Cause, Decided, Entry, Gap, Header, Line, Put, Synced
from extender.whatif.recording.player import NO_CHANGES, Changes
from extender.whatif.recording.report import Replay, Span
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod

SNAPSHOT: list[Line] = [
    Header("replica", 100.0),
    *(
        Entry(100.0, 0, Put(obj))
        for obj in (
            a_node("node-0", "z0"),
            a_node("node-1", "z1"),
            a_stateful_set(2),
            a_pool(4),
            a_pod(0, node="node-0"),
            a_pod(1, node="node-1"),
        )
    ),
    Synced(0),
]
WANTS = Entry(101.0, 1, Put(a_vpod("a", 4)))
DECIDES = Entry(
    101.0,
    2,
    Decided(Cause.PLACE, POOL, "tenant/a", 4, 1, {"dispatcher-0": 2, "dispatcher-1": 2}, 0),
)
PUBLISHES = Entry(102.0, 3, Put(a_vpod("a", 4, {0: 2, 1: 2})))
MOVES = Entry(110.0, 4, Put(a_vpod("a", 4, {0: 4})))
LINES = [*SNAPSHOT, WANTS, DECIDES, PUBLISHES, MOVES]


def replayed(lines: Iterable[Line | None], changes: Changes = NO_CHANGES, first: int = 20) -> Any:
    replay = Replay(Span(100.0, 110.0), profiles=BUILT_IN_PROFILES, changes=changes, first=first)
    for line in lines:
        replay.take(line)
    replay.end()
    return replay.to_json()


def test_the_same_profile_decides_the_same():
    report = replayed(LINES)
    assert report["decisions"] == {"compared": 1, "same": 1, "differing": 0, "first": []}
    assert set(report["outcome"]) == {"recorded", "rehearsed"}


def test_another_one_differs_and_says_in_what():
    report = replayed(LINES, Changes(profile="pack"))
    (first,) = report["decisions"]["first"]
    assert report["decisions"]["differing"] == 1
    assert (first["vpod"], first["at"], first["cause"]) == ("tenant/a", 101.0, "place")
    assert first["recorded"]["placements"] == {"dispatcher-0": 2, "dispatcher-1": 2}
    assert first["replayed"]["placements"] == {"dispatcher-0": 4}


def test_so_many_of_them_are_shown_and_all_are_counted():
    report = replayed(
        [*LINES, DECIDES._replace(at=110.0)], Changes(settings={"slotsPerPod": 1}), first=1
    )
    assert (report["decisions"]["differing"], len(report["decisions"]["first"])) == (2, 1)


def test_what_happened_is_beside_what_would_have():
    outcome = replayed(LINES, Changes(profile="pack"))["outcome"]
    assert outcome["recorded"]["movedVReplicas"] == 2, "seen in what was published"
    assert outcome["rehearsed"]["movedVReplicas"] == outcome["changed"]["movedVReplicas"] == 0
    assert outcome["rehearsed"]["zoneLossPercent"] == 50.0
    assert (outcome["changed"]["zoneLossPercent"], outcome["changed"]["vpodsInOneZone"]) == (
        100.0,
        1,
    )
    # Two pods over ten seconds.
    assert outcome["recorded"]["podHours"] == 0.006 == round(2 * 10 / 3600, 3)


def test_what_waits_is_counted_by_time():
    outcome = replayed([*SNAPSHOT, WANTS])["outcome"]
    assert outcome["recorded"]["unplacedMost"] == 4
    # Wanted after the sample of second 1, seen in those from second 2 on.
    assert outcome["recorded"]["unplacedVReplicaSeconds"] == 32.0
    assert outcome["rehearsed"]["unplacedAtEnd"] == 0


def test_equal_lines_give_equal_reports():
    changes = Changes(profile="spread", settings={"slotsPerPod": 3})
    assert replayed(LINES, changes) == replayed(LINES, changes)


def test_a_gap_and_a_line_that_is_not_whole_are_told():
    report = replayed([*LINES, Gap("too slow"), *SNAPSHOT, None])["recording"]
    assert (report["gaps"], report["cutOff"]) == (["too slow"], True)


def test_an_endless_silence_is_not_played_second_by_second():
    replay = Replay(Span(0.0, 1e9))
    for line in SNAPSHOT:
        replay.take(line._replace(at=0.0) if isinstance(line, Header | Entry) else line)
    replay.end()
    report = replay.to_json()["recording"]
    assert isinstance(report, dict)
    assert report["skippedSeconds"] == 1e9 - 6 * 3600
