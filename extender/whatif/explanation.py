"""Explains a vpod: where it is and why, each pod's verdict, what would place the rest, and what the
loss of a zone costs.

``place`` decides again, on a copy of the present state, so this is what the service decides next.
The caller supplies earlier decisions (``PastDecision``).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from extender.engine.placing.explain import Step
from extender.engine.placing.plan import Decision, place
from extender.engine.policy.framework import FilterPlugin
from extender.engine.policy.profile import Profile, Ties
from extender.engine.scaling.size import plan_scale
from extender.engine.state.availability import availability_of
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.counted import EXACT_MAX, counted
from extender.model.errors import VReplicaError
from extender.model.names import RELEASED_ANNOTATION
from extender.model.objects import VPod
from extender.model.quarantine import QUARANTINED
from extender.model.reasons import ConflictReason
from extender.whatif.candidates import candidates_of, loss_by_zone
from extender.whatif.fix import Fixes
from extender.whatif.fixes import find_fixes
from extender.whatif.tenants import quota_answer
from extender.whatif.told import told_of_vpod
from extender.whatif.trial import never

STEPS_LISTED_MAX: Final = 100
HISTORY_LISTED_MAX: Final = 50
NAMES_SUGGESTED: Final = 3
NAMES_COMPARED_MAX: Final = 20_000
"""Names to compare with an unknown one: the event loop waits meanwhile."""

Answer = dict[str, object]


class UnknownObject(VReplicaError):
    """No object has that name. The text lists similar names."""


class PastDecision(NamedTuple):
    """An earlier decision. ``at``: RFC 3339; ``by``: the identity that decided; ``why``: what
    caused it.
    """

    at: str
    by: str
    why: str
    text: str

    def to_json(self) -> dict[str, str]:
        """The decision in ``/v1/explain``."""
        return {"at": self.at, "by": self.by, "why": self.why, "text": self.text}


def pool_of_vpod(state: ClusterState, key: str) -> PoolState:
    """Find the pool of a vpod. Raises UnknownObject, with the most similar names."""
    for pool in state.pools.values():
        if key in pool.vpods:
            return pool
    for pool in state.pools.values():
        if pool.claims_of(key):
            raise UnknownObject(
                f"vpod {key} does not exist any more; {sum(pool.decided_of(key).values())} of its "
                f"vreplicas are still "
                f"in the ledgers of pool {pool.key} and are being released"
            )
    names = (name for pool in state.pools.values() for name in pool.vpods)
    raise UnknownObject(names_like(f"vpod {key}", key, list(islice(names, NAMES_COMPARED_MAX))))


def vpod_key(state: ClusterState, key: str) -> str:
    """Find the key of a vpod that is given with or without its kind (``@KIND.GROUP``, which only
    foreign objects have). Raises UnknownObject, also if several objects have the name.
    """
    if "@" in key or any(key in pool.vpods for pool in state.pools.values()):
        return key
    names = islice(
        (name for pool in state.pools.values() for name in pool.vpods), NAMES_COMPARED_MAX
    )
    found = sorted(name for name in names if name.partition("@")[0] == key)
    if len(found) > 1:
        raise UnknownObject(
            f"vpod {key} could be {' or '.join(found[:NAMES_SUGGESTED])}: say which"
        )
    return found[0] if found else key


def names_like(subject: str, key: str, known: Sequence[str]) -> str:
    """Say that ``subject`` is not known, and list objects of the same name or in the same
    namespace.
    """
    if not known:
        return f"{subject} does not exist: none is known at all"
    namespace, _, name = key.rpartition("/")
    same_name = [one for one in known if one.rpartition("/")[2].partition("@")[0] == name]
    beside = [one for one in known if namespace and one.startswith(f"{namespace}/")]
    near = sorted(
        {
            *same_name,
            *(one for one in beside if name[:4] and one.startswith(f"{namespace}/{name[:4]}")),
        }
    )
    shown = near or sorted(beside)
    if not shown:
        return f"{subject} does not exist; {len(known)} others do, none in that namespace"
    listed = ", ".join(islice(shown, NAMES_SUGGESTED))
    return f"{subject} does not exist; known are {listed}" + (
        " and others" if len(shown) > NAMES_SUGGESTED else ""
    )


def history_from_conditions(vpod: VPod) -> list[PastDecision]:
    """What the vpod's conditions say of its last decision and its last move, the later one first.

    A condition's time is that of its last change of status. Its reason and message may change
    later, so they are given as the present ones, not as those of that time.
    """
    found = [
        PastDecision(
            one.last_transition_time,
            "",
            f"its condition {one.type} has been {one.status} since then",
            f"as it stands now, {one.reason}{': ' if one.message else ''}{one.message}",
        )
        for one in vpod.conditions
        if one.last_transition_time
    ]
    return sorted(found, key=lambda one: one.at, reverse=True)


def explain_vpod(
    state: ClusterState,
    key: str,
    *,
    history: Sequence[PastDecision] = (),
    taken_back: bool = False,
    expired: Callable[[], bool] = never,
) -> Answer:
    """Explain one vpod. ``state`` is the caller's own copy; it is the same afterwards. Raises
    UnknownObject.

    ``history`` has earlier decisions, the last one first. ``taken_back``: as for ``place``, of the
    service's next decision. ``expired``: whether the time to look for changes is up.
    """
    pool = pool_of_vpod(state, key)
    vpod = pool.vpods[key]
    decision = place(pool, vpod, allowed=state.selects(pool.key, vpod), taken_back=taken_back)
    found = candidates_of(pool, vpod, decision)
    placed = pool.decided_of(key)
    published = {name: count for name, count in vpod.placements.items() if count}
    availability = availability_of(pool, key, published, decision.explanation.wanted)
    answer: Answer = {
        "kind": "VPod",
        "name": key,
        "pool": pool.key,
        "profile": pool.profile.name if pool.adapter_pool is not None else "",
        "rule": rule_of(pool.profile) if pool.adapter_pool is not None else "",
        "wanted": decision.explanation.asked,
        **({"quota": quota} if (quota := quota_answer(pool, vpod)) is not None else {}),
        "slotsPerVReplica": vpod.weight,
        **({"perVReplica": dict(vpod.per_vreplica)} if vpod.per_vreplica else {}),
        **({"minAvailable": vpod.min_available} if vpod.min_available else {}),
        **({"maxPerPod": vpod.max_per_pod} if vpod.max_per_pod else {}),
        "placed": placed,
        "published": published,
        "target": dict(decision.target),
        "pending": max(0, decision.explanation.asked - sum(published.values())),
        "unserved": availability.message() if availability.unserved else "",
        "left": decision.pending,
        "reason": str(decision.explanation.told_reason or ""),
        "outcome": outcome_of(pool, vpod, decision),
        "steps": [*_steps(pool, vpod, decision), *told_of_vpod(pool, key)],
        "decided": history[0].to_json() if history else None,
        "history": [one.to_json() for one in islice(history, HISTORY_LISTED_MAX)],
        "conditions": [
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": one.last_transition_time,
            }
            for one in vpod.conditions
        ],
        "candidates": list(found.rows),
        "candidatesNotListed": found.not_listed,
        "refusals": dict(found.refusals),
        "waiting": _waiting(pool, key),
        "size": size_of(state, pool),
        "zoneLoss": loss_by_zone(pool, placed or decision.target),
    }
    # Last: trials replace objects of the state by equal ones, so values looked up above may be
    # stale afterwards.
    fixes = find_fixes(state, pool, key, expired=expired) if decision.pending else Fixes()
    return answer | {
        "fixes": [fix.of_vpod() for fix in fixes.found],
        "fixesCutShort": fixes.cut_short,
    }


def outcome_of(pool: PoolState, vpod: VPod, decision: Decision) -> str:
    """The decision's outcome. If no pod could help, it says in words what is wrong."""
    match decision.explanation.reason:
        case ConflictReason.STATEFULSET_NOT_FOUND:
            name = pool.adapter_pool.stateful_set_key if pool.adapter_pool is not None else ""
            why = f"StatefulSet {name} of AdapterPool {pool.key} does not exist"
        case ConflictReason.STATEFULSET_TAKEN:
            name = pool.adapter_pool.stateful_set_key if pool.adapter_pool is not None else ""
            why = (
                f"AdapterPool {pool.taken_by} has StatefulSet {name}, which AdapterPool {pool.key} "
                f"names, too"
            )
        case ConflictReason.TENANT_NOT_ALLOWED:
            why = (
                f"the namespaceSelector of AdapterPool {pool.key} does not select namespace "
                f"{vpod.namespace}"
            )
        case ConflictReason.QUARANTINED:
            why = (
                f"its shares have preceded crashes of pods (condition {QUARANTINED}). Release it "
                f"with the annotation {RELEASED_ANNOTATION}"
            )
        case ConflictReason.UNSATISFIABLE:
            slots = pool.adapter_pool.slots_per_pod if pool.adapter_pool is not None else 0
            why = (
                f"one vreplica takes {counted(vpod.weight, 'slot')}, a pod of AdapterPool "
                f"{pool.key} has {slots}"
            )
            if vpod.weight <= slots:
                why = ""  # a dimension: the decision says which
        case _:
            why = ""
    outcome, wanted = decision.explanation.outcome(), decision.explanation.wanted
    if why:
        return f"{outcome}: {why}"
    if not decision.explanation.asked and decision.explanation.is_satisfied:
        return "it asks for no vreplicas"
    unpublished = wanted - sum(vpod.placements.values())
    explanation = decision.explanation
    if explanation.is_satisfied and not explanation.exceeds_quota and unpublished > 0:
        placed = "1 vreplica has" if wanted == 1 else f"all {wanted} vreplicas have"
        return f"{placed} a place; not published yet: {unpublished}"
    return outcome


def _steps(pool: PoolState, vpod: VPod, decision: Decision) -> list[str]:
    """What the next decision does, in sentences; first what it keeps."""
    made = [
        f"{item.step}: {item.vreplicas} on {item.pod_name}" + (f" ({item.why})" if item.why else "")
        for item in islice(decision.explanation.steps, STEPS_LISTED_MAX)
    ]
    waiting = {
        item.pod_name: item.vreplicas
        for item in decision.explanation.steps
        if item.step in (Step.HELD_BACK, Step.STAYS)  # they say themselves that it is kept
    }
    stays = {
        name: stay
        for name, count in pool.decided_of(vpod.key).items()
        if (stay := min(count, decision.target.get(name, 0)) - waiting.get(name, 0)) > 0
    }
    keeps = [f"kept: {count} on {name}" for name, count in islice(stays.items(), STEPS_LISTED_MAX)]
    raised = decision.explanation.wanted - vpod.vreplicas
    if raised > 0:
        keeps.insert(0, f"wants {vpod.vreplicas}, raised by {raised} to minPodsPerVPod")
    return [*keeps, *made][: 2 * STEPS_LISTED_MAX]


def _waiting(pool: PoolState, key: str) -> dict[str, int]:
    """The other vpods of the pool that wait."""
    others = [pool.vpods[other] for other in pool.vpods_with_pending if other != key]
    missing = [max(0, vpod.vreplicas - pool.decided_vreplicas(vpod.key)) for vpod in others]
    slots = sum(count * vpod.weight for count, vpod in zip(missing, others, strict=True))
    return {
        "vpods": len(others),
        "vreplicas": sum(missing),
        "slots": min(slots, EXACT_MAX),
    }


def size_of(state: ClusterState, pool: PoolState) -> Mapping[str, object] | None:
    """The size that the autoscaler wants for the pool; None while the pool or its StatefulSet is
    not known.

    ``withoutNode`` counts the pods that wait for a node. ``refusal`` is what kube-scheduler says of
    the first of them that it has refused.
    """
    plan = plan_scale(pool, partial(state.selects, pool.key))
    if plan is None or pool.adapter_pool is None or pool.stateful_set is None:
        return None
    pods = (member.pod for member in pool.members())
    waiting = [
        pod for pod in pods if pod is not None and not (pod.node or pod.deleting or pod.finished)
    ]
    return {
        "replicas": pool.stateful_set.replicas,
        "schedulable": pool.schedulable_count(),
        "wanted": plan.wanted,
        "unlimited": plan.needed,
        "maxPods": pool.adapter_pool.max_pods,
        "slotsPerPod": pool.adapter_pool.slots_per_pod,
        **({"capacities": dict(pool.capacities)} if pool.capacities else {}),
        "freeSlots": pool.free_slots(),
        "withoutNode": len(waiting),
        "refusal": next((pod.refusal for pod in waiting if pod.refusal), ""),
    }


def rule_of(profile: Profile) -> str:
    """The profile's rule in words. It applies to new vreplicas only: placed ones stay where they
    are.
    """
    if not profile.has_plugins:
        if not profile.rules.round_robin:
            return "pods with room are filled one after the other"
        return (
            "one vreplica to each pod with room in turn, by ascending ordinal, those that have "
            "some of it already last in each turn"
        )
    parts = []
    if profile.filters:
        parts.append(f"only where {' and '.join(_filter(one) for one in profile.filters)} allow it")
    scores = ", ".join(f"{one.plugin.name} x{one.weight}" for one in profile.choosing)
    parts.append(f"the best score of {scores}")
    return f"{'; '.join(parts)}; of equals {_TIES[profile.ties]}"


_TIES: Final = {
    Ties.LOWEST_ORDINAL: "the lowest ordinal",
    Ties.MOST_FREE_ZONE: "the lowest ordinal of the zone with the most free slots",
    Ties.ROUND_ROBIN: "the next in turn",
}


def _filter(plugin: FilterPlugin) -> str:
    skew = getattr(plugin, "max_skew", None)
    return f"{plugin.name} (MaxSkew {skew})" if isinstance(skew, int) else plugin.name
