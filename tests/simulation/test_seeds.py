"""Whole runs with faults: some of each part of the workload, and seeds that have shown bugs.

A seed looks for its bug only as long as nothing changes what it draws. ``FOUND`` holds those that
fail when the mend of their bug is taken out; a seed that no longer does so goes.
"""

import pytest

from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.world.profile import PARTS, FaultProfile
from extender.service.pools.descheduler import Descheduler

pytestmark = [pytest.mark.sim, pytest.mark.timeout(120)]

ANY_FAULTS = [Trial(seed, events=120) for seed in (1001, 1003, 1006)]
PLAIN = Trial(3, events=120, plain=True)
TWO_LEAD = Trial(
    90916227,
    events=500,
    only=frozenset([*range(40), *range(80, 160), *range(200, 240)]),
    faults=frozenset({"rivalLeader"}),
)
"""As ``shrink`` has left it of 500 events."""
FOUND = [TWO_LEAD, Trial(195993283, events=60)]
"""docs/reliability.md says what they found."""

RIVALS = [
    Trial(seed, events=60, profile=FaultProfile({"rivalLeader": 0.05, "leaseDeleted": 0.02}))
    for seed in (1, 2)
]


BUCKETS = [Trial(seed, events=60, profile=FaultProfile(buckets=3)) for seed in (1, 83402902)]
"""In the second one, a first placement was not told: another write of its commit had failed."""


WITH_CALLERS = [
    Trial(seed, events=60, profile=FaultProfile(parts=frozenset({"callers"})))
    for seed in (5031, 7001)
]


def test_callers_ask_crash_and_go_and_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_CALLERS]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_CALLERS)


WITH_STREAMS = [
    Trial(seed, events=60, profile=FaultProfile(parts=frozenset({"sources"})))
    for seed in (5001, 5002)
]


def test_objects_of_a_foreign_kind_come_and_go_and_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_STREAMS]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_STREAMS)


WITH_ALL = [
    *(
        Trial(seed, events=60, profile=FaultProfile(parts=frozenset(PARTS) - {"longNames"}))
        for seed in (9001, 9009)
    ),
    Trial(10142, events=60, profile=FaultProfile(parts=frozenset({"selectors"}))),
]


def test_with_selectors_and_narrowing_too_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_ALL]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_ALL)


WITH_LONG_NAMES = [
    Trial(seed, events=40, profile=FaultProfile(parts=frozenset({"longNames"}))) for seed in (6, 8)
]


def test_ledgers_have_no_bytes_left_and_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_LONG_NAMES]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_LONG_NAMES)


def test_a_dimension_goes_while_vpods_wait_on_a_marked_pod_and_the_invariants_hold():
    """What could never move opened closed pods again and again."""
    profile = FaultProfile(parts=frozenset({"dimensions"}))
    assert simulate(Trial(517, events=80, profile=profile)).problems == []


WITH_LOAD = [
    Trial(seed, events=60, profile=FaultProfile(parts=frozenset({"load"})))
    for seed in (5000, 5003, 5022)
]


def test_load_is_balanced_and_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_LOAD]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_LOAD)
    assert sum(outcome.moves.get("Load", 0) for outcome in outcomes) > 0


WITH_OWN_PROFILES = [
    Trial(seed, events=60, profile=FaultProfile(parts=frozenset(parts)))
    for seed, parts in (
        (7000003, {"callers", "sources", "load", "loadSource", "ownProfiles", "dimensions"}),
        (7000001, {"callers", "sources", "loadSource", "ownProfiles", "dimensions"}),
    )
]


def test_load_comes_from_prometheus_and_dimensions_are_even_and_the_invariants_hold():
    """In the first, a caller that wanted nothing let two vpods change places for ever."""
    outcomes = [simulate(trial) for trial in WITH_OWN_PROFILES]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_OWN_PROFILES)
    assert sum(outcome.moves.get("Policy", 0) for outcome in outcomes) > 0


RESTARTED = [
    Trial(
        seed,
        events=60,
        profile=FaultProfile(
            {"pauseReplica": 0.1, "schedulerRestart": 0.1, "killReplica": 0.05},
            others="none",
            parts=frozenset(),
        ),
    )
    for seed in (2, 7, 22)
]


def test_kube_scheduler_is_restarted_while_it_waits_for_a_replica_that_is_stopped():
    """The one before went on when that replica was killed, beside the new one, and a run never
    ended.
    """
    outcomes = [simulate(trial) for trial in RESTARTED]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(RESTARTED)


WITH_EVERY_KIND = [
    Trial(seed, events=60, profile=FaultProfile(others="all")) for seed in (7, 15, 16)
]


def test_with_every_kind_of_fault_at_once_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_EVERY_KIND]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_EVERY_KIND)
    assert len(set().union(*(outcome.faults for outcome in outcomes))) >= 45


def test_replicas_share_pools_in_buckets_and_the_invariants_hold():
    outcomes = [simulate(trial) for trial in BUCKETS]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(BUCKETS)


def test_a_rival_leads_beside_the_leader_and_i1_holds():
    outcomes = [simulate(trial) for trial in RIVALS]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(RIVALS)
    assert sum(outcome.faults["rivalLeader"] for outcome in outcomes) >= len(RIVALS)


@pytest.mark.parametrize("trial", [*ANY_FAULTS, PLAIN, *FOUND], ids=Trial.command)
def test_a_trial_keeps_the_invariants_and_settles(trial: Trial):
    assert simulate(trial).problems == []


def test_equal_trials_give_equal_traces():
    assert simulate(ANY_FAULTS[0]).digest == simulate(ANY_FAULTS[0]).digest


def test_without_faults_there_are_none():
    outcome = simulate(Trial(5, events=60, faults=frozenset()))
    assert (outcome.problems, outcome.faults.total()) == ([], 0)


def test_only_the_events_asked_for_happen():
    assert simulate(Trial(5, events=60, only=frozenset({0, 1, 2, 17}))).events == [0, 1, 2, 17]


WITH_DESCHEDULING = [
    Trial(seed, events=60, profile=FaultProfile(parts=frozenset({"descheduling"})))
    for seed in (3, 5, 8)
]


def test_pods_leave_tainted_nodes_and_the_invariants_hold():
    outcomes = [simulate(trial) for trial in WITH_DESCHEDULING]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(WITH_DESCHEDULING)


async def _never(*_: object) -> bool:
    return False


def test_pods_that_nobody_evicts_from_a_tainted_node_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Descheduler, "_evict", _never)
    problems = simulate(WITH_DESCHEDULING[1]).problems
    assert any("PodsMisplaced is 'EvictionDue'" in problem for problem in problems)


def test_to_a_replica_whose_clock_is_behind_pods_may_be_too_young_to_leave():
    profile = FaultProfile({"clockJump": 0.2}, parts=frozenset({"descheduling"}))
    assert simulate(Trial(11, events=30, profile=profile)).problems == []
