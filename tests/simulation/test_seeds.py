"""Whole runs with faults: a few fixed seeds, and seeds that fail when the fix of a bug is taken out again.

A seed shows a bug only as long as nothing else changes what is drawn. Each of ``CATCHING`` was seen to fail without its fix
since the last change of the workload; one that no longer does is to be replaced, not trusted. They are plain ones: one
pool with the defaults. All others have up to three pools, with profiles, moves, scale-down and all that is drawn for them.
"""

import pytest

from extender.simulation.run import simulate

pytestmark = pytest.mark.sim

FIXED = range(1001, 1005)

CATCHING = [
    # The leader had assumed a pod with pending vreplicas for a repeated bind, and published them; another replica had
    # bound the pod with an empty ledger. Statuses publish what confirmed ledgers cover, and no more.
    pytest.param(3050, id="an assumed pod is no covered pod"),
    # A spec changed, or the vpod was recreated, between decision and status: the old decision was published as the
    # answer to the new generation. Statuses are written only for the UID and generation that were decided.
    pytest.param(3, id="a status is of the spec that was decided"),
]

ONCE_CATCHING = [3073, 3042, 3055]
"""They have shown bugs (what overcommits a draining pod; a vreplica heavier than any pod; a leader that had not caught up),
and do not any more with the workload of today, even without the fixes. They stay as plain runs that have been hard."""

FOUND = [
    # A vpod's poolRef changed: the decision to release what it had was taken for one of an older vpod, since it still exists.
    pytest.param(2018, id="the ledgers of the pool that a vpod has left"),
    # The next decision starts from the move as decided, and has nothing to tell.
    pytest.param(2013, id="a move whose status was lost is told with its reason"),
    # A replica whose watch lags refused by what else is on the node, and did not see that the pod is there.
    pytest.param(3020, id="a repeated bind at a replica that is behind"),
    # A pod of 33 and one of 34 each wanted the other; before that, pods without a machine were replaced without end.
    # A status write that got no answer counted as done, although the vpod was seen in a newer version without it.
    pytest.param(7039, id="a shrink in doubt that is not wanted any more"),
    # The evictor moved what placing was about to take away, and published all of it.
    pytest.param(7060, id="fewer are wanted by the time of a move"),
    # A leader whose watch lags published what the ledger of a pod said that was gone; its next incarnation had been bound.
    pytest.param(7220, id="a ledger that only the watch has told of"),
    # A status whose answer was lost, then a Conflict: the ledger was lowered by what an old status said.
    pytest.param(8179, id="a ledger covers what may be published"),
    # Pods came, and nobody looked again at vpods whose target minPodsPerVPod raises.
    pytest.param(8027, id="more pods raise targets"),
    # What grew beyond a pod kept from being asked for what had to go first: both were written in one patch, for ever.
    pytest.param(13024, id="what grows does not keep from being asked what has to go"),
    pytest.param(5008, id="a pool that shrinks does not grow again at once"),
]
"""Seeds that were seen to fail before what they found was mended."""


@pytest.mark.parametrize("seed", [*FIXED, *FOUND])
def test_a_seed_keeps_the_invariants_and_settles(seed: int):
    assert simulate(seed).problems == []


@pytest.mark.parametrize("seed", [*CATCHING, *ONCE_CATCHING])
def test_a_seed_that_catches_a_bug_passes(seed: int):
    assert simulate(seed, plain=True).problems == []


def test_equal_seeds_give_equal_traces():
    assert simulate(7).digest == simulate(7).digest
