"""Whole runs with faults: a few fixed seeds, and seeds that fail when the fix of a bug is taken out again.

A seed shows a bug only as long as nothing else changes what is drawn. Each of ``CATCHING`` was seen to fail without its fix
since the last change of the workload; one that no longer does is to be replaced, not trusted. They are plain ones: one
pool with the defaults. All others have up to three pools, with profiles, moves, scale-down and all that is drawn for them.
"""

import pytest

from tests.simulation.run import simulate

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

OPEN = [
    # The old leader publishes late, by the ledger of a pod that has been deleted meanwhile; a replica that relisted, and so
    # has not seen that ledger, and whose vpods watch lags, binds the pod's next incarnation without it. No write spans
    # both objects. It is repaired within seconds and nothing is lost, but I2 does not hold in between.
    pytest.param(298, True, id="a late status against a bind by a lagging replica"),
    # A vpod's poolRef changes: what it had stays in the ledgers of the old pool's pods for ever. The decision to release it
    # is taken for one of an older vpod, since the vpod still exists.
    pytest.param(2018, False, id="the ledgers of the pool that a vpod has left"),
    # A status of a move has an unknown outcome: the next decision starts from the move as decided, and has nothing to tell.
    pytest.param(2013, False, id="a move whose status was lost tells no reason"),
    # A replica whose watch lags refuses a repeated bind by what else is on the node, and does not see that it is there.
    pytest.param(3020, False, id="a repeated bind at a replica that is behind"),
]


@pytest.mark.parametrize("seed", FIXED)
def test_a_seed_keeps_the_invariants_and_settles(seed: int):
    assert simulate(seed).problems == []


@pytest.mark.parametrize("seed", [*CATCHING, *ONCE_CATCHING])
def test_a_seed_that_catches_a_bug_passes(seed: int):
    assert simulate(seed, plain=True).problems == []


@pytest.mark.xfail(reason="open: see each seed", strict=False)
@pytest.mark.parametrize(("seed", "plain"), OPEN)
def test_a_seed_of_an_open_problem(seed: int, plain: bool):
    assert simulate(seed, plain=plain).problems == []


def test_equal_seeds_give_equal_traces():
    assert simulate(7).digest == simulate(7).digest
