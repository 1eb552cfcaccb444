"""autoscaler_v_new*.json, autoscaler_v_old*.json: how many pods Knative's autoscaler asks for, and
what it evicts.

*The size* is compared twice: as we do it by default, and with the profile that offers Knative's
formulas (``knative``; up to 1.16 ``knative-maxfillup``, or the case's policies as their ConfigMaps
are imported). A case that agrees only with the second agrees with the offered behaviour. What
neither gives is a named difference, if the rule's condition holds on the input and the formula
itself, without what the rule is about, gives Knative's number.

*Evictions*: Knative's newer version evicts what is on ordinals that are gone, in a pass that
changes no scale; ours is moved by placing, so the case is compared with what that drops there. The
older one evicts what is on the last ordinals; ours moves what is on the ordinals that the pool can
do without, and where those are others, the case is a named difference.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import looptime

from extender.engine.placing.explain import Step
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES, KNATIVE_PROFILE
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import plan_moves
from extender.engine.scaling.knative import pods_by_policy, scale_factor
from extender.engine.scaling.scale_down import count_without_empty, ordinals_to_close
from extender.engine.scaling.size import plan_scale
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.errors import InvalidObject
from extender.model.objects import ordinal_of
from tests.conformance.policies import Policy, profile_of
from tests.conformance.result import Case, Check, Difference
from tests.conformance.state_cases import (
    UNKNOWN_NODE,
    World,
    has_unknown_node,
    has_unready_node,
    summed,
    vpod_key,
)
from tests.support.placing import place
from tests.support.service import World as Cluster, until

Evictions = Counter[tuple[str, str]]
"""(vpod key, pod name) -> vreplicas."""

LEASE = Difference(
    "a Lease decides who leads",
    "Knative's leader is whoever's bucket has a fixed key",
    outside=True,
)
BY_NEED = Difference(
    "a pool is sized by what needs a place",
    "Knative's formulas count no raised target and no pod that takes no work, or add pods although "
    "there is room",
)
EMPTIED_FIRST = Difference(
    "scale-down empties pods first",
    "Knative removes pods and evicts what stood there afterwards; we remove them once they hold "
    "nothing",
)
NO_POLICY = Difference(
    "no policy at all is MAXFILLUP",
    "Knative then places nothing, and adds pods for it with every pass",
)
UNREADABLE = Difference(
    "what a policy cannot mean is refused",
    "Knative passes over a name or an argument that it does not know; the import of its ConfigMap "
    "says what is wrong",
)
NODE_NOT_READY = Difference(
    "a node that is not Ready takes no new work",
    "Knative 1.16 looks at the taint of unreachable nodes only, and of its effects not at "
    "PreferNoSchedule",
)
NO_NODES = Difference(
    "a factor of no nodes is 1",
    "Knative divides by the number of zones or nodes that take work, and without any takes pods "
    "away",
)
WEIGHT_0 = Difference(
    "a priority of weight 0 is switched off",
    "Knative still adds pods in multiples of the zones or nodes that it is about",
)
ONLY_NEEDLESS = Difference(
    "only pods that are not needed are emptied",
    "Knative looks at its last pods and at free slots, not at how many pods the vpods need",
)
GONE_POD = Difference(
    "a placement on a pod that is gone stops nothing",
    "Knative's compaction ends with an error at the first one",
)


@dataclass(frozen=True)
class Pass:
    """One pass of the autoscaler: its input, and Knative's answer."""

    world: World
    scale_down: bool
    profile: Profile
    replicas: int
    """Knative's answer."""

    @property
    def offered(self) -> str:
        """The profile's name, as users know it."""
        return (
            self.profile.name
            if self.profile.name in BUILT_IN_PROFILES
            else "imported from its policies"
        )

    def state(self, profile: Profile, world: World | None = None) -> PoolState:
        """The state of the one pool, of that profile. Knative's minReplicas is both the pool's and
        the vpod's floor.
        """
        state = (world or self.world).build()
        assert state.adapter_pool is not None
        state.set_pool(
            replace(state.adapter_pool, min_pods=self.world.min_replicas), state.stateful_set
        )
        state.set_profile(profile)
        return state

    def ours(self, profile: Profile) -> int:
        """What we ask for in one look: pods at once, fewer only where those above are closed and
        empty.
        """
        state = self.state(profile)
        wanted = self.formula(profile)
        if wanted >= self.world.replicas or not self.scale_down:
            return max(wanted, self.world.replicas)
        plan = plan_scale(state)
        assert plan is not None
        state.set_closed(ordinals_to_close(state, plan))
        return max(wanted, count_without_empty(state, ClusterState()))

    def formula(self, profile: Profile, world: World | None = None) -> int:
        """What we want, whatever has to be emptied for it."""
        plan = plan_scale(self.state(profile, world))
        assert plan is not None
        return plan.wanted

    def is_knatives(self, wanted: int) -> bool:
        """Whether Knative's answer is that it wants so many."""
        return self.replicas == (wanted if self.scale_down else max(wanted, self.world.replicas))

    def strands(self) -> bool:
        """Whether something is placed on the ordinals that go by the formula."""
        wanted = self.formula(self.profile)
        return self.scale_down and any(
            count and wanted <= (ordinal_of(name) or 0) < self.world.replicas
            for counts in self.world.status.values()
            for name, count in counts.items()
        )


def _size(one: Pass, rules: tuple[tuple[bool, Difference], ...] = ()) -> str | Difference | None:
    """``rules``: whether one's condition holds, on the input and on what Knative makes of it, and
    the rule.
    """
    if one.ours(DEFAULT_PROFILE) == one.replicas:
        return None
    found = one.ours(one.profile)
    if found == one.replicas:
        return replace(BY_NEED, offered=one.offered)
    if one.strands() and one.is_knatives(one.formula(one.profile)):
        return EMPTIED_FIRST
    for holds, rule in rules:
        if holds:
            return rule
    return (
        f"expected {one.replicas} pods, found {one.ours(DEFAULT_PROFILE)}, with {one.profile.name} "
        f"{found}"
    )


def _evictions(raw: object) -> Evictions:
    """Knative's, by vpod and pod: a list, or a map of lists by vpod."""
    items = (
        [{"vpod": key, **item} for key, items in raw.items() for item in items]
        if isinstance(raw, Mapping)
        else raw
    )
    found: Evictions = Counter()
    assert isinstance(items, list)
    for item in items:
        found[item["vpod"], item["podName"]] += item["vreplicas"]
    return +found


def _compare(expected: Evictions, found: Evictions) -> str | None:
    return (
        None if expected == found else f"expected evictions {dict(expected)}, found {dict(found)}"
    )


# -- today's version -------------------------------------------------------------------------------


def _world_new(case: Case) -> World:
    return World.of({"min_replicas": 0, **case}, case["vpods"])


def _dropped(world: World) -> Evictions:
    """What placing takes off ordinals that are gone."""
    state = world.build()
    found: Evictions = Counter()
    for key, vpod in state.vpods.items():
        for step in place(state, vpod).explanation.steps:
            if step.step is Step.DROPPED and not state.is_member(state.pods[step.pod_name]):
                found[key, step.pod_name] += step.vreplicas
    return found


def _autoscale_new(case: Case) -> str | Difference | None:
    world = _world_new(case)
    one = Pass(world, case["scale_down"], KNATIVE_PROFILE, case["expected"]["replicas"])
    size = _size(one)
    if isinstance(size, str) or "evictions" not in case["expected"]:
        return size
    compacts = one.scale_down and one.formula(KNATIVE_PROFILE) == world.replicas
    evictions = _evictions(case["expected"]["evictions"])
    return _compare(evictions, _dropped(world) if compacts else Counter()) or size


def _compact_new(case: Case) -> str | None:
    return _compare(_evictions(case["expected"]["evictions"]), _dropped(_world_new(case)))


# -- up to 1.16 ------------------------------------------------------------------------------------


def _policy(case: Case) -> Policy:
    return Policy(
        case["scheduler_policy_type"], case["scheduler_policy"], case["descheduler_policy"]
    )


def _world_old(case: Case) -> World:
    world = World.of(case, case["vpods"])
    return replace(
        world,
        status={vpod_key(raw): summed(raw, keep_zeros=True) for raw in case["vpods"]},
        decided=case.get("reserved") or {},
        policy_type=case["scheduler_policy_type"],
        nodes_are_listed=True,
    )


def _autoscale_old(case: Case) -> str | Difference | None:
    world, policy, expected = _world_old(case), _policy(case), case["expected"]
    if _fails_on_a_node(world):
        return UNKNOWN_NODE
    if "state_error" in expected:
        return f"expected the error {expected['state_error']}"
    try:
        profile = profile_of(policy)
    except InvalidObject:
        return UNREADABLE if policy.is_unreadable else f"the policies cannot be imported: {policy}"
    one = Pass(world, case["scale_down"], profile, expected["replicas"])
    as_knative_sees = replace(world, nodes=[_seen(node) for node in world.nodes])
    size = _size(
        one,
        (
            (
                not (policy.fills_up or policy.predicates or policy.placing_weights)
                and one.is_knatives(_by_names(one, policy)),
                NO_POLICY,
            ),
            (
                has_unready_node(world) and one.is_knatives(one.formula(profile, as_knative_sees)),
                NODE_NOT_READY,
            ),
            (
                _no_factor(policy)
                and not one.state(profile).topology.zone_of
                and one.replicas <= world.replicas,
                NO_NODES,
            ),
            (
                _has_factor_of_weight_0(policy) and one.is_knatives(_by_names(one, policy)),
                WEIGHT_0,
            ),
        ),
    )
    if isinstance(size, str):
        return size
    if "error" in expected:
        return (
            GONE_POD if _on_pods_that_are_gone(world) else f"expected the error {expected['error']}"
        )
    evictions = _evictions(expected.get("evictions") or [])
    if not evictions:
        return size  # ours has a loop and a period of its own
    state = one.state(profile)
    return _emptied(state, evictions, scale_factor(state, policy.placing_weights)) or size


def _fails_on_a_node(world: World) -> bool:
    """Whether one of the StatefulSet's pods stands on a node that is not listed; Knative looks at
    no others.
    """
    members = [pod for pod in world.pods if (ordinal_of(pod["name"]) or 0) < world.replicas]
    return has_unknown_node(replace(world, pods=members))


def _seen(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node with only those taints that Knative looks at."""
    taints = [
        taint
        for taint in node.get("taints") or []
        if taint["key"] == "node.kubernetes.io/unreachable"
        and taint["effect"] in {"NoExecute", "NoSchedule"}
    ]
    return {**node, "taints": taints}


def _no_factor(policy: Policy) -> bool:
    return bool(
        {"AvailabilityZonePriority", "AvailabilityNodePriority"} & policy.placing_weights.keys()
    )


def _has_factor_of_weight_0(policy: Policy) -> bool:
    items = (policy.scheduler or {}).get("priorities") or []
    return any(item["name"].startswith("Availability") and not item["weight"] for item in items)


def _by_names(one: Pass, policy: Policy) -> int:
    """Knative's formula for what the policies name, also with weight 0, also where they name
    nothing.
    """
    state = one.state(one.profile)
    assert state.adapter_pool is not None
    scores = {item["name"] for item in (policy.scheduler or {}).get("priorities") or []}
    wanted = pods_by_policy(
        state,
        state.adapter_pool,
        list(state.vpods.values()),
        filters=policy.predicates,
        scores=scores,
    )
    return max(state.adapter_pool.min_pods, wanted)


def _on_pods_that_are_gone(world: World) -> bool:
    names = {pod["name"] for pod in world.pods}
    return any(name not in names for counts in world.status.values() for name in counts)


def _compact_old(case: Case) -> str | Difference | None:
    evictions = _evictions(case["expected"]["evictions"])
    return _emptied(_world_old(case).build(), evictions, case["scale_up_factor"])


def _emptied(state: PoolState, evictions: Evictions, factor: int) -> str | Difference | None:
    """Whether we would move the same off the pods that the pool can do without. ``factor``: pods
    that Knative looks at.
    """
    plan = plan_scale(state)
    assert plan is not None
    assert state.stateful_set is not None
    needless = ordinals_to_close(state, plan)
    found: Evictions = Counter()
    for move in plan_moves(state, Limits(budget=10**9, emptying=needless)):
        found[move.vpod, move.from_pod] += move.vreplicas
    replicas = state.stateful_set.replicas
    last = (1 << replicas) - (1 << max(0, replicas - factor))
    return ONLY_NEEDLESS if evictions != found and needless != last else _compare(evictions, found)


# -- the loop --------------------------------------------------------------------------------------


def _loop(case: Case) -> str | None:
    """The whole service on the embedded cluster, in virtual time."""
    expected = case["expected"]

    async def run() -> None:
        cluster = await Cluster.create(
            replicas=case["replicas"],
            slots=case["capacity"],
            scaleDownPeriodSeconds=case["refresh_period_seconds"],
        )

        async with asyncio.timeout(
            expected["within_seconds"] + expected["stops_within_seconds_of_cancel"]
        ):
            async with cluster.serving():
                await until(
                    cluster.replicas, expected["replicas"], timeout_s=expected["within_seconds"]
                )

    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(run())
    except TimeoutError as error:
        return f"expected {expected}: {error}"
    finally:
        loop.close()
    return None


CHECKS: Mapping[str, Callable[[Case], str | Difference | None]] = {
    "constant": lambda _case: LEASE,
    "loop": _loop,
}
NEW = {**CHECKS, "autoscale": _autoscale_new, "compact": _compact_new}
OLD = {**CHECKS, "autoscale": _autoscale_old, "compact": _compact_old}


def check_new(case: Case) -> str | Difference | None:
    """One case of today's version."""
    return NEW.get(case["kind"], _unknown)(case)


def check_old(case: Case) -> str | Difference | None:
    """One case of the version up to 1.16."""
    return OLD.get(case["kind"], _unknown)(case)


def _unknown(case: Case) -> str:
    return f"unknown kind {case['kind']!r}"


FILES: dict[str, Check] = {
    "autoscaler_v_new.json": check_new,
    "autoscaler_v_new_observed.json": check_new,
    "autoscaler_v_old.json": check_old,
    "autoscaler_v_old_observed.json": check_old,
}
