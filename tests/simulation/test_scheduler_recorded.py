"""The embedded kube-scheduler on clusters that kube-scheduler 1.37.2 has decided.

Recorded with ``python -m tests.differential scheduler --first 1085 --cases 7 --record
tests/differential/recordings/scheduler.json``.
"""

import pytest

from tests.differential.scheduler_cases import unscored_pods
from tests.differential.scheduler_compare import mismatches
from tests.differential.scheduler_embedded import embedded_verdicts
from tests.differential.scheduler_recordings import Recording, load

RECORDINGS = load()


@pytest.mark.parametrize("recording", RECORDINGS, ids=[case.name for case, _ in RECORDINGS])
async def test_a_recorded_cluster_gets_the_same_nodes_reasons_and_scores(recording: Recording):
    case, theirs = recording
    assert mismatches(theirs, await embedded_verdicts(case), unscored_pods(case)) == []


def test_the_recordings_have_scores_of_every_plugin_and_refusals():
    verdicts = [verdict for _, theirs in RECORDINGS for verdict in theirs.values()]
    nonzero = {
        plugin
        for verdict in verdicts
        for scores in verdict.scores.values()
        for plugin, score in scores.items()
        if score
    }
    assert nonzero == {
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "TaintToleration",
    }
    reasons = " ".join(verdict.text for verdict in verdicts)
    for reason in (
        "Insufficient cpu",
        "Too many pods",
        "node(s) had untolerated taint(s)",
        "node(s) were unschedulable",
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't have free ports",
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "node(s) didn't match PersistentVolume's node affinity",
        "node(s) had no available volume zone",
        "node(s) exceed max volume count",
        "node(s) did not have enough free storage",
        "CSI driver is not installed on the node",
        "waiting for ephemeral volume controller to create the persistentvolumeclaim",
    ):
        assert reason in reasons, reason
