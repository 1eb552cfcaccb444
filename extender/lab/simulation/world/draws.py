"""What a seed draws before anything happens: the size of the world, its pools, and the rates of
faults.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.faults import FaultKind
from extender.lab.simulation.world.configuration import OWN_PROFILES
from extender.lab.simulation.world.profile import ALL_KINDS, DRAWN_LAST, OF_PARTS, PARTS, PARTS_LAST
from extender.lab.simulation.world.scale import (
    LOAD_METRIC,
    LOAD_SOURCE,
    SLOTS_FACTOR,
    TENANTS,
    Scale,
)

DELAY_MEAN_MAX_S: Final = 0.02
SLOW_MAX_S: Final = 6.0
GOLD: Final = {"tier": "gold"}
DESCHEDULING: Final = {
    "reasons": ["NodeMaintenance", "NodeTaints", "NodeAffinity", "ZoneSpread"],
    "minPodAgeSeconds": 5,
}
CAPACITIES: Final = {"cpu": 8, "memory": 16}
PART_SHARE: Final = 0.3
"""The share of seeds that have a part."""
PART_LAST_SHARE: Final = 0.1
EXCLUSIVE_SHARE: Final = 0.5
INDEXED_SHARE: Final = 0.5
PROFILES: Final = ("default", "default", "pack", "spread", "ha")
"""``knative`` is missing. It moves vreplicas whenever a pod restarts, as Knative does, which
violates I4 on purpose.
"""


def drawn_faults(rng: random.Random) -> dict[str, float]:
    """Return rates by kind, without ``DRAWN_LAST``. A seed has few or many of the kinds, each with
    a rate up to its maximum.
    """
    share = rng.choice((0.05, 0.15, 0.3, 0.6, 0.9))
    later = DRAWN_LAST.union(*OF_PARTS.values())
    return _drawn(rng, share, (kind for kind in ALL_KINDS if kind.name not in later))


def drawn_last(rng: random.Random) -> dict[str, float]:
    """Return the rates of ``DRAWN_LAST`` by kind."""
    return _drawn(rng, 0.15, (kind for kind in ALL_KINDS if kind.name in DRAWN_LAST))


def drawn_parts(rng: random.Random) -> frozenset[str]:
    """Return the parts of the world besides vpods, nodes and pools, without ``PARTS_LAST``."""
    return frozenset(part for part in PARTS if part not in PARTS_LAST and rng.random() < PART_SHARE)


def drawn_parts_last(seed: int) -> frozenset[str]:
    """Return the parts of ``PARTS_LAST``, which need time, so that few seeds have them."""
    return frozenset(
        part
        for part in PARTS_LAST
        if random.Random(f"{seed}/parts/{part}").random() < PART_LAST_SHARE
    )


def with_parts(scale: Scale, rng: random.Random, parts: frozenset[str], seed: int) -> Scale:
    """Return the world with these parts."""
    scale = replace(scale, sources="sources" in parts)
    if "selectors" in parts:
        labels = {tenant: drawn_labels(rng) for tenant in TENANTS}
        pools = tuple({**pool, "namespaceSelector": drawn_selector(rng)} for pool in scale.pools)
        scale = replace(scale, labels=labels, pools=pools)
    if "narrowing" in parts:
        scale = replace(scale, narrow_to=rng.randint(1, 3))
    scale = replace(scale, take_turns="takeTurns" in parts)
    scale = _with_parts_of_pools(scale, rng, parts, seed)
    if "longNames" in parts:
        node_slots = None if scale.node_slots is None else scale.node_slots * SLOTS_FACTOR
        slots = scale.slots_per_pod * SLOTS_FACTOR
        scale = replace(scale, long_names=True, slots_per_pod=slots, node_slots=node_slots)
    return scale


def _with_parts_of_pools(
    scale: Scale, rng: random.Random, parts: frozenset[str], seed: int
) -> Scale:
    """Return the world with the parts that are in the specs of its pools."""
    if "descheduling" in parts:
        pools = tuple({**pool, "descheduling": DESCHEDULING} for pool in scale.pools)
        scale = replace(scale, pools=pools)
    if "dimensions" in parts:
        pools = tuple(_with_dimensions(pool, rng) for pool in scale.pools)
        scale = replace(scale, dimensions=True, pools=pools)
    scale = replace(scale, limits="placement" in parts)
    if "handoff" in parts:
        scale = replace(scale, pools=_with_handoff(scale.pools, seed))
    if "tenancy" in parts:
        dice = random.Random(f"{seed}/tenancy")
        pools = tuple({"tenancy": drawn_tenancy(dice), **pool} for pool in scale.pools)
        scale = replace(scale, pools=pools)
    if "priorities" in parts:
        dice = random.Random(f"{seed}/priorities")
        pools = tuple({**drawn_preemption(dice), **pool} for pool in scale.pools)
        scale = replace(scale, pools=pools)
    if "crashes" in parts:
        dice = random.Random(f"{seed}/crashes")
        pools = tuple({**drawn_quarantine(dice), **pool} for pool in scale.pools)
        scale = replace(scale, pools=pools)
    if parts & {"load", "loadSource", "ownProfiles"}:
        pools = tuple(_balancing(pool, rng) for pool in scale.pools)
        scale = replace(scale, pools=pools, load=True)
    if "loadSource" in parts:
        pools = tuple({**pool, "loadSource": LOAD_SOURCE} for pool in scale.pools)
        scale = replace(scale, pools=pools)
    if "ownProfiles" in parts:
        pools = tuple({**pool, "profile": rng.choice(OWN_PROFILES)} for pool in scale.pools)
        scale = replace(scale, pools=pools, own_profiles=True)
    return scale


def _with_handoff(pools: Iterable[Mapping[str, Any]], seed: int) -> tuple[Obj, ...]:
    """Return the pools with adapters that are told their shares, in all ways that there are."""
    dice = random.Random(f"{seed}/handoff")
    found = [{"handoff": _drawn_handoff(dice), **pool} for pool in pools]
    for name, change in (
        ("exclusive", _perhaps_exclusive),
        ("indexed", _perhaps_indexed),
        ("rollout", _with_rollout),
        ("maxUnavailable", _with_max_unavailable),
    ):
        dice = random.Random(f"{seed}/{name}")
        found = [change(pool, dice) for pool in found]
    return tuple(found)


def _drawn_handoff(rng: random.Random) -> Obj:
    """Return ``spec.handoff`` of a pool. A quarter of the pools only tells its adapters."""
    mode = "None" if rng.random() < 0.25 else "Overlap"
    timeouts = {
        "prepareTimeoutSeconds": rng.choice((5, 10, 30)),
        "drainTimeoutSeconds": rng.choice((3, 10, 60)),
    }
    return {"mode": mode, **timeouts}


def _perhaps_exclusive(pool: Obj, rng: random.Random) -> Obj:
    """Return the pool; half of those that hand shares over are exclusive."""
    exclusive, lease_s = rng.random() < EXCLUSIVE_SHARE, rng.choice((5, 15, 30))
    if not exclusive or pool["handoff"]["mode"] != "Overlap":
        return pool
    handoff = {**pool["handoff"], "mode": "Exclusive", "leaseSeconds": lease_s}
    return {**pool, "handoff": handoff}


def _perhaps_indexed(pool: Obj, rng: random.Random) -> Obj:
    """Return the pool, half of them with indexes."""
    if rng.random() >= INDEXED_SHARE or "identity" in pool["handoff"]:
        return pool
    return {**pool, "handoff": {**pool["handoff"], "identity": "Indexed"}}


def _with_rollout(pool: Obj, rng: random.Random) -> Obj:
    """Return the pool, for half of those that hand shares over with rollouts that do."""
    surge, hands_over = rng.choice((0, 1, 1, 2)), rng.random() < 0.5
    if not hands_over or pool["handoff"]["mode"] == "None":
        return pool
    return {**pool, "rollout": {"strategy": "HandedOver", "surge": surge}}


def _with_max_unavailable(pool: Obj, rng: random.Random) -> Obj:
    """Return the pool; half of those that hand shares over have a limit of their own."""
    limited, most = rng.random() < 0.5, rng.choice((1, 2, 3, "25%", "50%"))
    per_vpod = rng.choice((None, "100%", 1, 2, "50%"))
    if not limited or pool["handoff"]["mode"] == "None":
        return pool
    limits = {"pool": most, **({"perVPod": per_vpod} if per_vpod is not None else {})}
    return {**pool, "handoff": {**pool["handoff"], "maxUnavailable": limits}}


def drawn_quarantine(rng: random.Random) -> Obj:
    """Return ``spec.quarantine`` of a pool; nothing for a pool without."""
    if rng.random() < 0.3:
        return {}
    limits = {"crashedPods": rng.choice((2, 2, 3)), "withinSeconds": rng.choice((5, 60, 300))}
    return {"quarantine": {**limits, "maxVPods": rng.choice((1, 3, 100))}}


def drawn_preemption(rng: random.Random) -> Obj:
    """Return ``spec.preemption`` of a pool; nothing for a pool that does not preempt."""
    if rng.random() < 0.25:
        return {}
    preemption: Obj = {"patienceSeconds": rng.choice((0, 0, 5, 30))}
    preemption |= {"slotsPerPeriod": rng.choice((1, 3, 10))} if rng.random() < 0.3 else {}
    return {"preemption": preemption}


def drawn_tenancy(rng: random.Random) -> Obj:
    """Return ``spec.tenancy`` of a pool. Half of the pools do not limit who has no quota."""
    tenancy: Obj = {"defaultGuarantee": rng.choice((0, 0, 2, 4))}
    tenancy |= {"defaultLimit": limit} if (limit := rng.choice((None, None, 6, 20))) else {}
    tenancy |= {"weights": {TENANTS[0]: rng.randint(2, 4)}} if rng.random() < 0.3 else {}
    return tenancy


def drawn_labels(rng: random.Random) -> dict[str, str]:
    """Return the labels of a tenant's namespace."""
    return rng.choice((GOLD, GOLD, {}))


def drawn_selector(rng: random.Random) -> Obj:
    """Return ``spec.namespaceSelector`` of a pool."""
    return rng.choice(({}, {"matchLabels": GOLD}))


def drawn_of_parts(rng: random.Random, parts: frozenset[str], seed: int) -> dict[str, float]:
    """Return the rates of the faults of all parts; 0 if the world does not have the part. A world
    with the part ``descheduling`` always has nodeTainted, from dice of its own.
    """
    drawn: dict[str, float] = {}
    for part, names in OF_PARTS.items():
        rates = _drawn(rng, 0.5, (kind for kind in ALL_KINDS if kind.name in names))
        drawn |= rates if part in parts else dict.fromkeys(rates, 0.0)
    if "descheduling" in parts:
        dice = random.Random(f"{seed}/descheduling")
        drawn |= _drawn(dice, 1.0, (kind for kind in ALL_KINDS if kind.name == "nodeTainted"))
    return drawn


def _drawn(rng: random.Random, share: float, kinds: Iterable[FaultKind]) -> dict[str, float]:
    return {
        kind.name: rng.uniform(0.0, kind.most) if rng.random() < share else 0.0 for kind in kinds
    }


def drawn_delays(rng: random.Random) -> dict[str, float]:
    """Return the network's ``delayMeanS`` and ``slowMaxS``, in seconds."""
    return {
        "delayMeanS": rng.uniform(DELAY_MEAN_MAX_S / 10, DELAY_MEAN_MAX_S),
        "slowMaxS": rng.uniform(SLOW_MAX_S / 10, SLOW_MAX_S),
    }


def drawn_scale(rng: random.Random, *, plain: bool = False) -> Scale:
    """Return the world's size. ``plain``: one pool with the defaults. The order of its draws must
    stay, because seeds that have found bugs depend on it.
    """
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
    return replace(
        scale, node_slots=node_slots, pools=tuple(_drawn_pool(rng) for _ in range(pools))
    )


def _balancing(pool: Mapping[str, Any], rng: random.Random) -> Obj:
    load = {"metric": LOAD_METRIC, "target": rng.choice((1.1, 1.2, 1.5))}
    return {**pool, "rebalance": {**pool.get("rebalance", {}), "load": load}}


def _with_dimensions(pool: Mapping[str, Any], rng: random.Random) -> Obj:
    """Add capacities. Two of three such pools make room, and swap under a profile that scores."""
    pool = {**pool, "capacities": CAPACITIES}
    if rng.random() < 1 / 3:
        return pool
    moving = {"movesPerPeriod": 20, "dryRun": False, "makeRoomBeforeGrowing": rng.random() < 0.5}
    profile = rng.choice(("spread", "ha", pool.get("profile", "default")))
    return {**pool, "profile": profile, "rebalance": {**pool.get("rebalance", {}), **moving}}


def _drawn_pool(rng: random.Random) -> Obj:
    return {
        "profile": rng.choice(PROFILES),
        "minPodsPerVPod": rng.choice((0, 0, 0, 2, 3)),
        "rescheduleAfterSeconds": rng.choice((None, None, 5, 30)),
        "scaleDownPeriodSeconds": rng.choice((2, 5, 10, 20)),
        "rebalance": drawn_rebalance(rng),
    }


def drawn_rebalance(rng: random.Random) -> Obj:
    """Return ``spec.rebalance`` of a pool."""
    moves, cooldown_s = rng.choice((0, 3, 10, 20)), rng.choice((0, 0, 5, 30))
    way = rng.random()
    return {
        "movesPerPeriod": moves,
        "cooldownSeconds": cooldown_s,
        "dryRun": way < 0.1,
        "makeRoomBeforeGrowing": way > 0.7,
    }
