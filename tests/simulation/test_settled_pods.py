"""What is at rest in a pool whose pods do not become Ready: vreplicas leave them as far as others
may come.
"""

from dataclasses import replace

import pytest

from extender.lab.simulation.checkers.settled import Stored
from extender.lab.simulation.world.facts import Pod, Pool, VPod


def a_pod(ordinal: int) -> Pod:
    """A pod that is not Ready, on a node that is."""
    ledger = {"t/v": (1, 1)} if not ordinal else {}
    pod = Pod(f"a-{ordinal}", "a", "u", "node", 4, ledger, "{}", marked=False, deleting=False)
    return replace(pod, ready=False)


@pytest.mark.parametrize(
    ("pods", "is_told"),
    [
        pytest.param(1, True, id="one is replaced"),
        pytest.param(
            2, False, id="one has been replaced, and its successor serves no more than it"
        ),
    ],
)
def test_the_pool_gets_one_pod_more_than_serve_and_no_more(pods: int, is_told: bool):
    """Seed 321000061."""
    pool = Pool("a", slots=4, max_pods=6, ordinals=range(pods), reschedule_after_s=5.0)
    there = {f"a-{ordinal}": a_pod(ordinal) for ordinal in range(pods)}
    condition = ("False", "InsufficientSlots")
    vpod = VPod("t/v", "u", "a", 1, 1, 1, 1, {"a-0": 1}, 1, condition, ("", "", ""))
    stored = Stored(there, {vpod.key: vpod}, {"a": pool}, ready_nodes={"node"})
    found = [line for line in stored._status_differences(vpod) if "to be emptied" in line]
    assert bool(found) is is_told
