"""Packing: the same as asking every pod for every vreplica, without asking every pod."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping

import pytest

from extender.engine.scaling.packing import Packing, ZonePacking, zone_rule
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.ledger import Share
from tests.support.builders import Scene, a_node

SEEDS = range(60)
AMOUNTS: list[Amounts] = [(), (), (("cpu", 1),), (("cpu", 3),), (("cpu", 2), ("memory", 5))]
CAPACITIES: list[Amounts] = [(), (("cpu", 4),), (("cpu", 9), ("memory", 12))]


class Straightforward(Packing):
    """One vreplica after the other, each round over all pods by ordinal; one more pod where none
    has room.
    """

    left: Mapping[int, dict[str, int]]
    """What each ordinal has left of each dimension; the test sets it."""
    on_pods: Counter[tuple[str, int]]
    """(Vpod key, ordinal) -> its vreplicas there; the test sets it."""

    def add(
        self,
        vpod_key: str,
        missing: int,
        weight: int,
        amounts: Amounts = NO_AMOUNTS,
        most: int = 0,
    ) -> int:
        while missing:
            given = 0
            for ordinal in sorted(self._free):
                left = self.left[ordinal]
                fits = all(left.get(name, 0) >= amount for name, amount in amounts)
                fits = fits and (not most or self.on_pods[vpod_key, ordinal] < most)
                if missing and self._free[ordinal] >= weight and fits:
                    self._free[ordinal] -= weight
                    self.on_pods[vpod_key, ordinal] += 1
                    for name, amount in amounts:
                        left[name] -= amount
                    missing -= 1
                    given += 1
            if not given and self._append() is None:
                return missing
        return 0


class Counting(dict[int, int]):
    """How often somebody has asked for a pod's free slots."""

    asked = 0

    def __getitem__(self, ordinal: int) -> int:
        self.asked += 1
        return super().__getitem__(ordinal)


def a_scene(rng: random.Random) -> Scene:
    scene = Scene(
        replicas=rng.randrange(8),
        slots=rng.randint(1, 12),
        capacities=rng.choice(CAPACITIES),
    )
    for ordinal in range(8):
        if rng.random() < 0.7:
            ledger = {
                f"tenant/{number}": Share(rng.randint(1, 3), 1, rng.choice(AMOUNTS))
                for number in range(rng.randrange(3))
            }
            scene.pod(ordinal, ledger, **({"unschedulable": True} if rng.random() < 0.2 else {}))
    return scene


@pytest.mark.parametrize("seed", SEEDS)
def test_it_packs_as_if_every_pod_were_asked_for_every_vreplica(seed):
    rng = random.Random(seed)
    scene = a_scene(rng)
    assert scene.pool.adapter_pool is not None
    assert scene.pool.stateful_set is not None
    ordinals, most = scene.pool.stateful_set.ordinals, rng.randrange(12)
    fast = Packing(scene.pool, scene.pool.adapter_pool, ordinals, added_max=most)
    plain = Straightforward(scene.pool, scene.pool.adapter_pool, ordinals, added_max=most)
    plain.left = defaultdict(lambda: dict(scene.pool.capacities))
    plain.on_pods = Counter(
        {
            (key, ordinal): share.vreplicas
            for ordinal, pod in scene.pool.by_ordinal.items()
            if ordinal in ordinals
            for key, share in (pod.pod.ledger.items() if pod.pod is not None else ())
        }
    )
    limits: dict[str, int] = {}
    for ordinal, pod in scene.pool.by_ordinal.items():
        for share in pod.pod.ledger.values() if pod.pod is not None else ():
            for name, amount in share.amounts:
                if name in plain.left[ordinal]:
                    plain.left[ordinal][name] -= share.vreplicas * amount
    for number in range(rng.randint(1, 12)):
        key = rng.choice([f"tenant/{rng.randrange(3)}", f"tenant/new{number}"])
        missing, weight = rng.randrange(15), rng.randint(1, 4)
        most = limits.setdefault(key, rng.choice([0, 1, 2, 5]))
        asked = (key, missing, weight, rng.choice(AMOUNTS), most)
        assert fast.add(*asked) == plain.add(*asked), f"seed {seed}"
        assert (fast.added, fast._free) == (plain.added, plain._free), f"seed {seed}"


@pytest.mark.parametrize("profile", ["default", "ha"])
def test_what_is_asked_grows_with_the_pods_and_not_with_their_square(profile):
    """Found by fuzzing: a vpod of 10,000 vreplicas, each of which leaves a pod with a slot too few,
    took 20 s.
    """
    scene = (
        Scene(replicas=2, slots=5, profile=profile)
        .node(a_node("n0", "z0"))
        .node(a_node("n1", "z1"))
    )
    scene.pod(0, node="n0").pod(1, node="n1")
    assert scene.pool.adapter_pool is not None
    rule = zone_rule(scene.pool)
    packing = (
        Packing(scene.pool, scene.pool.adapter_pool, range(2), added_max=1000)
        if rule is None
        else ZonePacking(scene.pool, scene.pool.adapter_pool, range(2), added_max=1000, rule=rule)
    )
    assert (rule is None) is (profile == "default")
    packing._free = Counting(packing._free)
    for number in range(400):
        assert packing.add(f"tenant/v{number}", 4, 2) == 0
    assert packing.added > 700
    assert packing._free.asked < 10 * packing.added
