"""Changes of a number or a profile that give a pool more room, or make a vpod ask for less. Each
uses the least number that is enough.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from extender.engine.policy.profile import Profile
from extender.engine.scaling.size import POOL_PODS_MAX, plan_scale
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import AMOUNT_MAX, DIMENSIONS_MAX
from extender.model.objects import AdapterPool, VPod
from extender.node.verbs import node_problem
from extender.whatif.bench import Bench, Change, exchanging
from extender.whatif.fix import Fix, SkewLimit, greater_skew, skew_limits
from extender.whatif.growth import add_pods, autoscale, bind_missing, held_back
from extender.whatif.trial import Trial

PODS_TRIED_MAX: Final = 512
"""Additional pods that are tried."""
SLOTS_TRIED_MAX: Final = 100_000
SIZES_TRIED_MAX: Final = 4
"""Sizes of pods that are tried if none is enough."""
PROFILES_TRIED_MAX: Final = 12


# -- pods ------------------------------------------------------------------------------------------


def pods_more(bench: Bench) -> Iterator[Fix]:
    """More pods. If maxPods forbids them, a greater maxPods: the autoscaler then adds them."""
    pool = bench.pool
    spec, stateful_set = pool.adapter_pool, pool.stateful_set
    if spec is None or stateful_set is None:
        return
    if not spec.could_hold(bench.vpod):
        return  # no pod of this size would take one
    limit = POOL_PODS_MAX if spec.max_pods is None else spec.max_pods
    room = min(_most_pods(bench, spec), limit - stateful_set.replicas)
    found = bench.smallest(partial(_adding, pool), 1, room) if room > 0 else None
    if found is not None:
        count, result = found
        by_itself, note = _who_adds(bench, stateful_set.replicas, count)
        yield Fix(
            change="one pod more" if count == 1 else f"{count} pods more",
            subject=f"StatefulSet {stateful_set.key}",
            field="spec.replicas",
            before=stateful_set.replicas,
            after=stateful_set.replicas + count,
            by_itself=by_itself,
            note=note,
        ).seen(result, bench)
    elif spec.max_pods is not None:
        yield from _greater_max_pods(bench, spec, spec.max_pods)


def _who_adds(bench: Bench, replicas: int, count: int) -> tuple[bool, str]:
    """Whether the autoscaler will add ``count`` pods that find nodes, and a note on it."""
    pool = bench.pool
    plan = plan_scale(pool, partial(bench.state.selects, pool.key))
    spec = pool.adapter_pool
    if spec is not None and not spec.writes_replicas:
        follow = "" if spec.is_sized_by_others else ", and should follow status.desiredPods"
        mode = spec.scaling.mode
        return False, f"others decide how many pods there are (scaling.mode is {mode}){follow}"
    wanted = plan.wanted if plan is not None else replicas
    if wanted < replicas + count:
        adds = f"only {wanted - replicas} of them" if wanted > replicas else "none"
        return (
            False,
            f"the autoscaler adds {adds}: it counts on the {replicas} there are, those that wait "
            f"too",
        )
    refused = held_back(pool, bench.state)
    if refused:
        ordinal, refusal = next(iter(refused.items()))
        name = (
            f"{pool.stateful_set.name}-{ordinal}" if pool.stateful_set is not None else str(ordinal)
        )
        return (
            False,
            f"the autoscaler asks for it, but kube-scheduler finds no node for {name} either: "
            f"{refusal}",
        )
    if count > 1:
        return True, "the autoscaler adds them, where nodes have room"
    return True, "the autoscaler adds it, where a node has room"


def _most_pods(bench: Bench, spec: AdapterPool) -> int:
    """Return an upper bound of the pods needed: each is at least half full, each zone gets one
    more, and so many are needed for maxPerPod (``engine.scaling.size``).
    """
    zones = len(bench.pool.hosting.known_in)
    if spec.capacities:
        return PODS_TRIED_MAX  # slots do not bound it
    vpod, most = bench.vpod, 2 * -(-bench.slots_waiting // spec.slots_per_pod) + zones + 1
    if vpod.max_per_pod:
        most += -(-vpod.vreplicas // vpod.max_per_pod)
    return min(PODS_TRIED_MAX, most)


def _adding(pool: PoolState, count: int) -> Change:
    # Pods that wait for a node already may go on waiting: the trial is about the new ones.
    return lambda trial: len(add_pods(trial, pool, count)) == count


def _greater_max_pods(bench: Bench, spec: AdapterPool, max_pods: int) -> Iterator[Fix]:
    pool, most = bench.pool, _most_pods(bench, spec)

    def make(count: int) -> Change:
        def change(trial: Trial) -> None:
            trial.exchange(spec, replace(spec, max_pods=max_pods + count))
            bind_missing(trial, pool)
            autoscale(trial, pool, bench.turns, most=most)

        return change

    found = bench.smallest(make, 1, most)
    if found is not None:
        count, result = found
        yield Fix(
            change=f"maxPods {max_pods} to {max_pods + count}",
            subject=f"AdapterPool {spec.key}",
            field="spec.maxPods",
            before=max_pods,
            after=max_pods + count,
            note="the autoscaler adds what it needs of them",
        ).seen(result, bench)


# -- the pool's profile ----------------------------------------------------------------------------


def larger_skew(bench: Bench) -> Iterator[Fix]:
    """A greater MaxSkew of one of the profile's filters."""
    pool = bench.pool
    profile = pool.profile
    for limit in skew_limits(profile):
        found = bench.smallest(partial(raising, pool, limit), 1, max(1, bench.vpod.vreplicas))
        if found is not None:
            more, result = found
            yield greater_skew(profile, limit, more).seen(result, bench)


def raising(pool: PoolState, limit: SkewLimit, more: int) -> Change:
    """The change that raises the MaxSkew of one of the profile's filters by ``more``."""
    return lambda trial: trial.set_profile(pool, limit.raised(pool.profile, more))


def other_profile(bench: Bench) -> Iterator[Fix]:
    """Another profile that the service knows."""
    pool = bench.pool
    spec = pool.adapter_pool
    if spec is None:
        return
    for name, profile in _others(bench.state.profiles, pool.profile.name):
        result = bench.helps(partial(Trial.set_profile, pool=pool, profile=profile))
        if result is not None and not result.left:
            yield Fix(
                change=f"profile {pool.profile.name} to {name}",
                subject=f"AdapterPool {spec.key}",
                field="spec.profile",
                before=spec.profile,
                after=name,
                note="for all vpods of the pool; what is placed stays, but policy may move it "
                "later",
            ).seen(result, bench)


def _others(profiles: Mapping[str, Profile], name: str) -> Iterator[tuple[str, Profile]]:
    """Other profiles with the same rules. Rules that follow Knative exactly are no way to find
    room.
    """
    mine = profiles[name].rules if name in profiles else None
    others = [
        (other, one) for other, one in profiles.items() if other != name and one.rules == mine
    ]
    yield from others[:PROFILES_TRIED_MAX]


# -- sizes -----------------------------------------------------------------------------------------


def more_slots(bench: Bench) -> Iterator[Fix]:
    """A greater slotsPerPod. Pods take it over when they are created again, if their nodes declare
    enough.
    """
    pool = bench.pool
    spec = pool.adapter_pool
    if spec is None or pool.stateful_set is None:
        return
    most = min(SLOTS_TRIED_MAX, bench.slots_waiting + bench.vpod.weight)
    make = partial(_larger, pool, spec)
    # If no size is enough, try sizes that fit one vreplica, two, and so on.
    heavier = max(1, bench.vpod.weight - spec.slots_per_pod)
    partly = range(heavier, heavier + SIZES_TRIED_MAX * bench.vpod.weight, bench.vpod.weight)
    found = bench.smallest(make, 1, most) or bench.most_with_least(make, partly)
    if found is not None:
        more, result = found
        stamped = any(pod.pod is not None and pod.pod.slots is not None for pod in pool.members())
        yield Fix(
            change=f"slotsPerPod {spec.slots_per_pod} to {spec.slots_per_pod + more}",
            subject=f"AdapterPool {spec.key}",
            field="spec.slotsPerPod",
            before=spec.slots_per_pod,
            after=spec.slots_per_pod + more,
            note="once its pods have been restarted: a pod keeps the slots it was created with"
            if stamped
            else "",
        ).seen(result, bench)


def _larger(pool: PoolState, spec: AdapterPool, more: int) -> Change:
    larger = replace(spec, slots_per_pod=spec.slots_per_pod + more)
    return lambda trial: resize(trial, pool, larger)


def resize(trial: Trial, pool: PoolState, spec: AdapterPool) -> bool:
    """Replace the pool's object and restart all pods with its slots. Return False if a node does
    not declare enough slots.
    """
    trial.exchange(pool.adapter_pool, spec)
    fits = True
    for member in list(pool.members()):
        pod = member.pod
        if pod is None or pod.slots in {None, spec.slots_per_pod}:
            continue
        request = spec.slots_per_pod if pod.slots_request else pod.slots_request
        new = replace(pod, slots=spec.slots_per_pod, slots_request=request)
        trial.exchange(pod, new)
        if member.node is not None and node_problem(trial.state, new, member.node) is not None:
            fits = False
    return fits


def more_capacity(bench: Bench) -> Iterator[Fix]:
    """A greater amount of a dimension that the vpod takes, or a dimension that the pool lacks. Pods
    have it at once.
    """
    pool, vpod = bench.pool, bench.vpod
    spec = pool.adapter_pool
    if spec is None or pool.stateful_set is None:
        return
    known = dict(spec.capacities)
    waiting = [vpod, *(pool.vpods[key] for key in pool.vpods_with_pending if key in pool.vpods)]
    for name, _ in vpod.per_vreplica:
        had = known.get(name, 0)
        if not had and len(known) >= DIMENSIONS_MAX:
            continue
        wanted = sum(dict(one.per_vreplica).get(name, 0) * one.vreplicas for one in waiting)
        make = partial(_with_capacity, spec, name, had)
        found = bench.smallest(make, 1, min(AMOUNT_MAX - had, wanted))
        if found is not None:
            more, result = found
            yield Fix(
                change=f"capacities.{name} {had} to {had + more}"
                if had
                else f"capacities.{name} {more}, which the pool lacks",
                subject=f"AdapterPool {spec.key}",
                field=f"spec.capacities.{name}",
                before=had or None,
                after=had + more,
            ).seen(result, bench)


def _with_capacity(spec: AdapterPool, name: str, had: int, more: int) -> Change:
    capacities = tuple(sorted({**dict(spec.capacities), name: had + more}.items()))
    return exchanging(spec, replace(spec, capacities=capacities))


def greater_max_per_pod(bench: Bench) -> Iterator[Fix]:
    """A greater placement.maxPerPod."""
    vpod = bench.vpod
    most = vpod.max_per_pod
    if not most:
        return

    def make(more: int) -> Change:
        new = replace(vpod, max_per_pod=most + more, generation=vpod.generation + 1)
        return exchanging(vpod, new)

    found = bench.smallest(make, 1, max(1, vpod.vreplicas - most))
    if found is not None:
        more, result = found
        yield Fix(
            change=f"maxPerPod {most} to {most + more}",
            subject=f"VPod {vpod.key}",
            field="spec.placement.maxPerPod",
            before=most,
            after=most + more,
        ).seen(result, bench)


def lighter_vreplicas(bench: Bench) -> Iterator[Fix]:
    """A smaller slotsPerVReplica."""
    vpod = bench.vpod
    yield from _less_of(
        bench,
        vpod.weight,
        lambda weight: replace(vpod, weight=weight, generation=vpod.generation + 1),
        lambda weight: Fix(
            change=f"slotsPerVReplica {vpod.weight} to {weight}",
            subject=f"VPod {vpod.key}",
            field="spec.slotsPerVReplica",
            before=vpod.weight,
            after=weight,
        ),
        partly=True,
    )


def fewer_vreplicas(bench: Bench) -> Iterator[Fix]:
    """Fewer vreplicas."""
    vpod = bench.vpod
    yield from _less_of(
        bench,
        vpod.vreplicas,
        lambda vreplicas: replace(
            vpod, vreplicas=vreplicas, not_admitted=None, generation=vpod.generation + 1
        ),
        lambda vreplicas: Fix(
            change=f"ask for {vpod.asked - vreplicas} less",
            subject=f"VPod {vpod.key}",
            field="spec.vreplicas",
            before=vpod.asked,
            after=vreplicas,
        ),
    )


def _less_of(
    bench: Bench,
    count: int,
    new: Callable[[int], VPod],
    fix: Callable[[int], Fix],
    *,
    partly: bool = False,
) -> Iterator[Fix]:
    """Find the greatest number below ``count``, at least 1, that leaves nothing without a place.
    With ``partly``, accept one that leaves the fewest.
    """
    vpod = bench.vpod
    if vpod.source:
        return  # the field belongs to another kind, if there is one

    def make(less: int) -> Change:
        return exchanging(vpod, new(count - less))

    found = bench.smallest(make, 1, count - 1)
    if found is None and partly:
        found = bench.most_with_least(make, range(1, min(count, 1 + SIZES_TRIED_MAX)))
    if found is not None:
        less, result = found
        yield fix(count - less).seen(result, bench)
