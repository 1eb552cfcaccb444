"""What is at rest: a pod that ledgers need for their bytes, or a rollout as a surge pod, is not one
too many.
"""

from dataclasses import replace

import pytest

from extender.lab.simulation.checkers.settled import Stored
from extender.lab.simulation.world.facts import Pod, Pool, VPod


def a_pod(ordinal: int) -> Pod:
    return Pod(f"a-{ordinal}", "a", "u", "node-0", 1_000, {}, "{}", False, deleting=False)


def a_vpod(number: int, name_chars: int) -> VPod:
    key = f"t/{number:0{name_chars}}"
    return VPod(key, "u", "a", 1, 1, 1, 1, {"a-0": 1}, 1, ("True", "AllPlaced"), ("", "", ""))


@pytest.mark.parametrize(
    ("name_chars", "too_many"), [pytest.param(250, 0, id="long"), pytest.param(10, 1, id="short")]
)
def test_an_empty_pod_is_too_many_only_where_the_others_have_bytes_for_all(
    name_chars: int, too_many: int
):
    vpods = [a_vpod(number, name_chars) for number in range(240)]
    pool = Pool("a", slots=1_000, min_pods=1, max_pods=3, ordinals=range(2))
    pods = {pod.name: pod for pod in map(a_pod, range(2))}
    stored = Stored(pods, {vpod.key: vpod for vpod in vpods}, {"a": pool})
    assert len(list(stored.idle())) == too_many


@pytest.mark.parametrize(("revision", "too_many"), [("old", 0), ("new", 1)])
def test_a_surge_pod_stays_while_a_drained_pod_of_an_old_revision_waits(
    revision: str, too_many: int
):
    """Seed 590001745: somebody had tried to evict that pod until lately."""
    pool = Pool("a", slots=2, surge=1, ordinals=range(3))
    pods = [
        replace(
            a_pod(ordinal), slots=2, revision="new" if ordinal else revision, marked=not ordinal
        )
        for ordinal in range(3)
    ]
    vpod = replace(a_vpod(0, 3), placements={"a-1": 1})
    stored = Stored({pod.name: pod for pod in pods}, {vpod.key: vpod}, {"a": pool})
    assert len(list(stored.idle())) == too_many
