"""The parts of the scheduler comparison that need no control plane: draws, kube-scheduler's log,
mismatches, shrinking.
"""

from pathlib import Path

from tests.differential.scheduler_cases import SchedulerCase, scheduler_case
from tests.differential.scheduler_compare import FEASIBLE, SCORE, TEXT, mismatches
from tests.differential.scheduler_real import SchedulerLog, Verdict
from tests.differential.scheduler_run import reasons_of
from tests.differential.scheduler_shrink import shrunk

LOG = (
    'I1121 22:58:01.100001   21 eventhandlers.go:63] "Add event for node" node="node-00"\n'
    'I1121 22:58:01.100002   21 eventhandlers.go:374] "Add event for scheduled pod" '
    'pod="default/running-00"\n'
    'I1121 22:58:01.100003   21 schedule_one.go:982] "Plugin scored node for pod" pod="default/p" '
    'plugin="NodeResourcesFit" node="node-00" score=87\n'
    'I1121 22:58:01.100004   21 schedule_one.go:1239] "Unable to schedule pod; no fit; waiting" '
    'pod="default/p" '
    'err="0/1 nodes are available: 1 node(s) didn\'t match \\"it\\"."\n'
)


def test_a_seed_is_always_the_same_cluster_and_seeds_differ():
    assert scheduler_case(7) == scheduler_case(7)
    assert scheduler_case(7) != scheduler_case(8)


def test_the_log_is_read_as_it_grows_also_when_a_line_is_half_written(tmp_path: Path):
    path = tmp_path / "scheduler.log"
    log = SchedulerLog(path)
    half = len(LOG) - 30
    path.write_text(LOG[:half])
    log.read()
    assert log.events == {
        ("Add event for node", "node-00"): 1,
        ("Add event for scheduled pod", "default/running-00"): 1,
    }
    assert log.scores == {"default/p": {"node-00": {"NodeResourcesFit": 87}}}
    assert log.outcomes == {}
    path.write_text(LOG)
    log.read()
    assert log.outcomes == {"default/p": '0/1 nodes are available: 1 node(s) didn\'t match "it".'}


def test_scores_are_compared_where_the_same_nodes_fit_and_a_skipped_plugin_gave_nothing():
    theirs = Verdict(frozenset({"a", "b"}), "text", {"a": {"Fit": 1, "Other": 0}, "b": {"Fit": 2}})
    same = Verdict(frozenset({"a", "b"}), "text", {"a": {"Fit": 1}, "b": {"Fit": 2}})
    worse = Verdict(frozenset({"a", "b"}), "text", {"a": {"Fit": 1}, "b": {"Fit": 3}})
    fewer = Verdict(frozenset({"a"}), "other text", {})
    assert mismatches({"p": theirs}, {"p": same}) == []
    (scored,) = mismatches({"p": theirs}, {"p": worse})
    assert (scored.kind, scored.theirs, scored.ours) == (f"{SCORE} Fit", "{'b': 2}", "{'b': 3}")
    assert [found.kind for found in mismatches({"p": theirs}, {"p": fewer})] == [FEASIBLE, TEXT]


async def test_shrinking_leaves_only_what_the_failure_needs():
    case = scheduler_case(3)
    zone = "topology.kubernetes.io/zone"

    async def fails(candidate: SchedulerCase) -> bool:
        return any(zone in node["metadata"].get("labels", {}) for node in candidate.nodes) and bool(
            candidate.running
        )

    assert await fails(case)
    small = await shrunk(case, fails, tries_max=2000)
    assert (len(small.nodes), len(small.running), len(small.pending), small.lookups) == (
        1,
        1,
        1,
        (),
    )
    assert list(small.nodes[0]["metadata"]["labels"]) == [zone]
    assert small.nodes[0]["status"] == {} or "images" not in small.nodes[0]["status"]


async def test_shrinking_stops_at_its_limit():
    tries = 0

    async def fails(_candidate: SchedulerCase) -> bool:
        nonlocal tries
        tries += 1
        return False

    case = scheduler_case(3)
    assert await shrunk(case, fails, tries_max=5) == case
    assert tries == 5


def test_a_verdict_tells_which_reasons_a_run_has_reached():
    text = (
        "0/3 nodes are available: 1 Insufficient cpu, 2 seen by the extender. preemption: 0/3 "
        "nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert reasons_of(text) == {"Insufficient cpu"}
    missing = 'persistentvolumeclaim "pending-01-scratch" not found'
    found = reasons_of(f"0/3 nodes are available: {missing}. preemption: not helpful")
    assert found == {'persistentvolumeclaim "pending-N-scratch" not found'}
