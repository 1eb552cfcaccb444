"""DefaultPreemption: make room for a pod by deleting pods of lower priority.

Candidates are nodes whose refusal preemption may cure (Unschedulable, not
UnschedulableAndUnresolvable). On a copy of each candidate all pods of lower priority are removed.
If the pod then fits, as many of them as possible are put back, most important first. Pods that a
disruption budget protects are put back before the others. Extenders may drop nodes or change
victims.

These criteria choose the node, in this order: the fewest budget violations, the lowest priority of
the most important victim, the lowest sum of priorities, the fewest victims, the latest start. This
module writes nothing: ``Preemption`` says what to do.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Final

from extender.lab.scheduler.algorithm import Diagnosis, FitError
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.extender_client import Extender, ExtenderError, Victims
from extender.lab.scheduler.framework import CycleState, NodeStatuses, Nominator, Profile
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, Status, unresolvable
from extender.model.reading import condition_in, mapping, selector_from, text

CANDIDATES_PERCENTAGE: Final = 10
CANDIDATES_MIN: Final = 100
_NEVER: Final = "9999"
"""Sorts after every RFC 3339 time, so a pod that has not started counts as the youngest."""
_PRIORITY_OFFSET: Final = 2**31
_NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")
_NO_CYCLE_STATE: Final = Status(Code.ERROR, ("not found",))
"""kube-scheduler's fwk.ErrNotFound. Another plugin's PreFilter refused the pod first, so the
PreFilter of DynamicResources left no state.
"""
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
DISRUPTION_TARGET: Final = "DisruptionTarget"


NOBODY: Final = Victims(())


@dataclass(frozen=True, slots=True)
class Preemption:
    """The result. ``status`` None: delete ``victims`` and nominate ``node``.

    With a status, ``node`` "" clears the pod's nomination, and None leaves it.
    """

    status: Status | None
    node: str | None = None
    victims: Victims = NOBODY
    message: str = ""
    """The message of all PostFilter plugins, for the condition; set by ``run_post_filters``."""


class Preemptor:
    """The plugin."""

    def __init__(
        self,
        extenders: Sequence[Extender],
        nominator: Nominator,
        listers: Listers,
        rng: random.Random,
    ) -> None:
        self._extenders = extenders
        self._nominator = nominator
        self._listers = listers
        self._rng = rng

    async def run_post_filters(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        diagnosis: Diagnosis,
        snapshot: Snapshot,
    ) -> Preemption:
        """RunPostFilterPlugins. DynamicResources runs first. If its PreFilter did not run, it
        fails, and no preemption is tried.
        """
        if diagnosis.pre_filter_message:
            return Preemption(_NO_CYCLE_STATE, message=_NO_CYCLE_STATE.message)
        found = await self.preempt(profile, state, pod, diagnosis.statuses, snapshot)
        if found.status is None:
            return found
        return replace(found, message=f"preemption: {found.status.message}")

    async def preempt(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        statuses: NodeStatuses,
        snapshot: Snapshot,
    ) -> Preemption:
        """Find the node and the victims. ``pod`` should be the newest version."""
        refusal = self._not_eligible(pod, statuses, snapshot)
        if refusal:
            return Preemption(Status(Code.UNSCHEDULABLE, (refusal,)))
        potential = [
            node for node in snapshot.nodes if statuses.get(node.name).code is Code.UNSCHEDULABLE
        ]
        candidates, refused = self._dry_run(profile, state, pod, potential)
        if not candidates:
            absent = unresolvable("Preemption is not helpful for scheduling")
            diagnosis = Diagnosis(NodeStatuses(refused, absent))
            message = str(FitError(len(snapshot.nodes), diagnosis))
            return Preemption(Status(Code.UNSCHEDULABLE, (message,)), node="")
        try:
            candidates = await call_extenders(self._extenders, pod, candidates, snapshot)
        except ExtenderError as error:
            return Preemption(Status(Code.ERROR, (str(error),)))
        if not candidates:
            return Preemption(Status(Code.UNSCHEDULABLE, ("no candidate node for preemption",)))
        node = pick_one_node(candidates)
        return Preemption(None, node, candidates[node])

    def _not_eligible(self, pod: PodInfo, statuses: NodeStatuses, snapshot: Snapshot) -> str:
        if pod.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        node = snapshot.by_name.get(pod.nominated_node)
        if (
            node is None
            or statuses.get(pod.nominated_node).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        ):
            return ""
        if any(
            other.priority < pod.priority and terminating_by_preemption(other)
            for other in node.pods.values()
        ):
            return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _dry_run(
        self, profile: Profile, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]
    ) -> tuple[dict[str, Victims], dict[str, Status]]:
        if not nodes:
            return {}, {}
        wanted = min(max(len(nodes) * CANDIDATES_PERCENTAGE // 100, CANDIDATES_MIN), len(nodes))
        offset = self._rng.randrange(len(nodes))
        clean: dict[str, Victims] = {}
        violating: dict[str, Victims] = {}
        refused: dict[str, Status] = {}
        for node in [*nodes[offset:], *nodes[:offset]]:
            found = self._select_victims(profile, state.clone(), pod, node.clone())
            if isinstance(found, Status):
                refused[node.name] = found
                continue
            (violating if found.pdb_violations else clean)[node.name] = found
            if clean and len(clean) + len(violating) >= wanted:
                break
        return {**clean, **violating}, refused

    def _select_victims(
        self, profile: Profile, state: CycleState, pod: PodInfo, node: NodeInfo
    ) -> Victims | Status:
        """Return the victims on one node. ``state`` and ``node`` must be copies."""
        potential = [other for other in node.pods.values() if other.priority < pod.priority]
        if not potential:
            return _NO_VICTIMS

        def remove(other: PodInfo) -> None:
            node.remove_pod(other)
            profile.remove_pod(state, pod, other, node)

        def fits() -> Status | None:
            return profile.run_filters_with_nominated(state, pod, node, self._nominator)

        for other in potential:
            remove(other)
        refusal = fits()
        if refusal is not None:
            return refusal
        potential.sort(key=importance)
        protected, free = self._by_budget(potential)
        victims: list[PodInfo] = []
        violations = 0
        for other in [*protected, *free]:
            node.add_pod(other)
            profile.add_pod(state, pod, other, node)
            if fits() is not None:
                remove(other)
                victims.append(other)
                violations += other in protected
        if not victims:
            return Status(Code.ERROR, (f'expected at least one victim pod on node "{node.name}"',))
        return Victims(tuple(sorted(victims, key=importance)), violations)

    def _by_budget(self, pods: Sequence[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Return the pods whose deletion violates a budget, and the others, both in order."""
        allowed: dict[str, int] = {}
        protected: list[PodInfo] = []
        free: list[PodInfo] = []
        for pod in pods:
            broken = False
            for budget in self._listers.disruption_budgets(pod.namespace) if pod.labels else ():
                selector = selector_from(mapping(budget, "spec", "selector"))
                if not (
                    selector.match_labels or selector.match_expressions
                ) or not selector.matches(pod.labels):
                    continue
                status = mapping(budget, "status")
                if pod.name in mapping(status, "disruptedPods"):
                    continue
                name = text(budget, "metadata", "name")
                disruptions = status.get("disruptionsAllowed")
                left = allowed.get(name, disruptions if isinstance(disruptions, int) else 0) - 1
                allowed[name] = left
                broken |= left < 0
            (protected if broken else free).append(pod)
        return protected, free


def terminating_by_preemption(pod: PodInfo) -> bool:
    """Return whether a pod is being deleted because the scheduler preempted it."""
    if not pod.deleting:
        return False
    condition = condition_in(pod.obj, DISRUPTION_TARGET)
    said = (condition.get("status"), condition.get("reason"))
    return said == ("True", PREEMPTION_BY_SCHEDULER)


def _compare(one: PodInfo, other: PodInfo) -> int:
    if one.priority != other.priority:
        return other.priority - one.priority
    first, second = one.start_time or _NEVER, other.start_time or _NEVER
    return (first > second) - (first < second)


importance = cmp_to_key(_compare)
"""The sort key MoreImportantPod: higher priority first, then the pod that started earlier."""


async def call_extenders(
    extenders: Sequence[Extender],
    pod: PodInfo,
    candidates: Mapping[str, Victims],
    snapshot: Snapshot,
) -> dict[str, Victims]:
    """Call the extenders with a preempt verb. Each gets the candidates that the one before left.
    Raises ExtenderError of an extender that is not ignorable.
    """
    remaining = dict(candidates)
    for extender in extenders:
        if not remaining:
            break
        if not extender.supports_preemption or not extender.is_interested(pod):
            continue
        try:
            answer = await extender.process_preemption(pod, remaining, snapshot)
        except ExtenderError:
            if extender.is_ignorable:
                continue
            raise
        empty = [node for node, victims in answer.items() if not victims.pods]
        if empty and not extender.is_ignorable:
            raise ExtenderError(f'expected at least one victim pod on node "{empty[0]}"')
        remaining = {node: victims for node, victims in answer.items() if victims.pods}
    return remaining


def pick_one_node(candidates: Mapping[str, Victims]) -> str:
    """pickOneNodeForPreemption. Of equal nodes it returns the first."""

    def cost(node: str) -> tuple[int, int, int, int]:
        victims = candidates[node]
        return (
            victims.pdb_violations,
            victims.pods[0].priority,
            sum(pod.priority + _PRIORITY_OFFSET for pod in victims.pods),
            len(victims.pods),
        )

    lowest = min(cost(node) for node in candidates)
    return max(
        (node for node in candidates if cost(node) == lowest),
        key=lambda n: _earliest(candidates[n]),
    )


def _earliest(victims: Victims) -> str:
    """Return the earliest start of the victims with the highest priority."""
    highest = max(pod.priority for pod in victims.pods)
    return min(pod.start_time or _NEVER for pod in victims.pods if pod.priority == highest)
