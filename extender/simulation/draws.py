"""What a seed draws before anything happens: how large the world is, its pools, and how often what fails."""

import random
from dataclasses import fields, replace
from typing import Final

from extender.kube.api import Obj
from extender.sim.faults import FaultRates
from extender.simulation.world import Scale

RATES_MAX: Final = FaultRates(
    refused=0.15,
    lost_before=0.1,
    lost_after=0.1,
    slow=0.1,
    watch_cut=0.03,
    watch_expired=0.02,
    event_doubled=0.1,
    repeated=0.3,
    delay_mean_s=0.02,
    slow_max_s=6.0,
)
PROFILES: Final = ("default", "default", "pack", "spread", "ha")
"""Not ``knative``, which moves work whenever a pod restarts: it is Knative's way, and breaks I4 on purpose."""


def drawn_rates(rng: random.Random) -> FaultRates:
    """Each fault is absent in 4 of 10 seeds, else as frequent as it may be, or less."""
    drawn: dict[str, float] = {}
    for item in fields(FaultRates):
        most = getattr(RATES_MAX, item.name)
        is_delay = item.name.endswith("_s")
        if is_delay:
            drawn[item.name] = rng.uniform(most / 10, most)
        elif rng.random() >= 0.4:
            drawn[item.name] = rng.uniform(0.0, most)
    return FaultRates(**drawn)


def drawn_scale(rng: random.Random, *, plain: bool = False) -> Scale:
    """``plain``: one pool with the defaults, as the seeds were drawn that have caught bugs."""
    scale = Scale(
        nodes=rng.randint(2, 6),
        slots_per_pod=rng.randint(3, 10),
        min_pods=rng.choice((0, 0, 0, 1, 2)),
        max_pods=rng.choice((None, None, 3, 6, 10)),
        replicas=rng.choice((1, 2, 2, 2, 3)),
    )
    if plain:
        return scale
    pools = rng.choice((1, 1, 2, 3))
    node_slots = rng.choice((None, None, None, scale.slots_per_pod * rng.randint(2, 4)))
    return replace(scale, node_slots=node_slots, pools=tuple(_drawn_pool(rng) for _ in range(pools)))


def _drawn_pool(rng: random.Random) -> Obj:
    return {
        "profile": rng.choice(PROFILES),
        "minPodsPerVPod": rng.choice((0, 0, 0, 2, 3)),
        "rescheduleAfterSeconds": rng.choice((None, None, 5, 30)),
        "scaleDownPeriodSeconds": rng.choice((2, 5, 10, 20)),
        "rebalance": drawn_rebalance(rng),
    }


def drawn_rebalance(rng: random.Random) -> Obj:
    return {
        "movesPerPeriod": rng.choice((0, 3, 10, 20)),
        "cooldownSeconds": rng.choice((0, 0, 5, 30)),
        "dryRun": rng.random() < 0.1,
    }
