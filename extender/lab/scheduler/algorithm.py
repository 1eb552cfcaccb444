"""One scheduling decision: filter, the extenders' filter, scores, the extenders' scores, and the
choice of a node. This module writes nothing.

The search for nodes starts where the last one stopped, and ends when enough nodes fit
(percentageOfNodesToScore). Extenders filter one after the other: each gets the nodes that the one
before left. If one node is left, it is not scored. ``select_host`` chooses among equal
nodes.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.extender_client import Extender, ExtenderError
from extender.lab.scheduler.framework import (
    CycleState,
    NodeScores,
    NodeStatuses,
    Nominator,
    PluginError,
    Profile,
    int64,
)
from extender.lab.scheduler.queueing_hints import EXTENDER
from extender.lab.scheduler.select_host import HostSelector
from extender.lab.scheduler.types import (
    MAX_NODE_SCORE,
    Code,
    NodeInfo,
    PodInfo,
    Status,
    unresolvable,
)
from extender.model.errors import VReplicaError

log = logging.getLogger(__name__)

MAX_EXTENDER_PRIORITY: Final = 10
_NODES_TO_FIND_MIN: Final = 100
_PERCENTAGE_MIN: Final = 5


class NoNodesAvailable(VReplicaError):
    """The cluster has no nodes."""

    def __init__(self) -> None:
        super().__init__("no nodes available to schedule pods")


class SchedulingError(VReplicaError):
    """An extender or a plugin failed, so there is no decision."""


@dataclass(slots=True)
class Diagnosis:
    """Why a pod fits nowhere."""

    statuses: NodeStatuses = field(default_factory=NodeStatuses)
    refused_by: set[str] = field(default_factory=set)
    pre_filter_message: str = ""
    post_filter_message: str = ""


class FitError(VReplicaError):
    """The pod fits no node. The text is that of FailedScheduling events."""

    def __init__(self, nodes: int, diagnosis: Diagnosis) -> None:
        super().__init__()
        self.nodes = nodes
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        parts = [f"0/{self.nodes} nodes are available:"]
        diagnosis = self.diagnosis
        if diagnosis.pre_filter_message:
            parts.append(f"{diagnosis.pre_filter_message}.")
        elif histogram := reasons_histogram(diagnosis.statuses, self.nodes):
            parts.append(f"{', '.join(histogram)}.")
        if diagnosis.post_filter_message:
            parts.append(diagnosis.post_filter_message)
        return " ".join(parts)


def reasons_histogram(statuses: NodeStatuses, nodes: int) -> list[str]:
    """Return how many nodes have each reason, sorted as text: ``["2 Insufficient cpu", ...]``."""
    counts: dict[str, int] = {}
    for status in statuses.explicit.values():
        for reason in status.reasons:
            counts[reason] = counts.get(reason, 0) + 1
    absent = nodes - len(statuses.explicit)
    if absent > 0:
        for reason in statuses.absent.reasons:
            counts[reason] = counts.get(reason, 0) + absent
    return sorted(f"{number} {reason}" for reason, number in counts.items())


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The chosen node, and how many nodes were evaluated and were feasible."""

    node: str
    evaluated_nodes: int
    feasible_nodes: int


class SchedulingAlgorithm:
    """``schedule_pod`` for one cluster. It remembers where the next search starts."""

    def __init__(
        self,
        extenders: Sequence[Extender],
        nominator: Nominator,
        select_host: HostSelector,
        *,
        percentage_of_nodes_to_score: int = 0,
    ) -> None:
        self.extenders = extenders
        self._nominator = nominator
        self._select_host = select_host
        self._percentage = percentage_of_nodes_to_score
        self._next_start = 0

    async def schedule_pod(
        self, profile: Profile, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> ScheduleResult:
        """Choose a node. Raises FitError, NoNodesAvailable, SchedulingError."""
        if not snapshot.nodes:
            raise NoNodesAvailable
        diagnosis = Diagnosis()
        try:
            feasible = await self._find_nodes_that_fit(profile, state, pod, snapshot, diagnosis)
            if not feasible:
                raise FitError(len(snapshot.nodes), diagnosis)
            evaluated = len(feasible) + len(diagnosis.statuses.explicit)
            if len(feasible) == 1:
                return ScheduleResult(feasible[0].name, evaluated, 1)
            scores = await prioritize_nodes(self.extenders, profile, state, pod, feasible, snapshot)
        except (ExtenderError, PluginError) as error:
            raise SchedulingError(str(error)) from error
        best = max(score.total for score in scores)
        equal = [score.name for score in scores if score.total == best]
        return ScheduleResult(self._select_host(equal), evaluated, len(feasible))

    async def _find_nodes_that_fit(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
    ) -> list[NodeInfo]:
        prepared = profile.run_pre_filters(state, pod, snapshot)
        diagnosis.refused_by |= prepared.plugins
        if prepared.status is not None:
            diagnosis.statuses.absent = prepared.status
            diagnosis.pre_filter_message = prepared.status.message
            diagnosis.refused_by.add(prepared.status.plugin)
            return []
        if pod.nominated_node in snapshot.by_name:
            nominated = await self._try_nominated(profile, state, pod, snapshot, diagnosis)
            if nominated:
                return nominated
        nodes: Sequence[NodeInfo] = snapshot.nodes
        if prepared.nodes is not None:
            nodes = [
                snapshot.by_name[name]
                for name in sorted(prepared.nodes)
                if name in snapshot.by_name
            ]
            plugins = " ".join(sorted(prepared.plugins))
            diagnosis.statuses.absent = unresolvable(
                f"node(s) didn't satisfy plugin(s) [{plugins}]"
            )
        feasible = self._pass_filters(profile, state, pod, nodes, diagnosis)
        processed = len(feasible) + len(diagnosis.statuses.explicit)
        self._next_start = (self._next_start + processed) % len(snapshot.nodes)
        passed = await find_nodes_that_pass_extenders(
            self.extenders, pod, feasible, diagnosis.statuses
        )
        if len(passed) != len(feasible):
            diagnosis.refused_by.add(EXTENDER)
        return passed

    async def _try_nominated(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
    ) -> list[NodeInfo]:
        node = snapshot.by_name[pod.nominated_node]
        feasible = self._pass_filters(profile, state, pod, [node], diagnosis)
        try:
            return await find_nodes_that_pass_extenders(
                self.extenders, pod, feasible, diagnosis.statuses
            )
        except ExtenderError as error:
            # As in kube-scheduler: all nodes are tried next, and the error is raised again there.
            log.info(
                "nominated node %s of pod %s could not be evaluated: %s", node.name, pod.key, error
            )
            return []

    def _pass_filters(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        nodes: Sequence[NodeInfo],
        diagnosis: Diagnosis,
    ) -> list[NodeInfo]:
        if not nodes:
            return []
        wanted = self._nodes_to_find(profile, len(nodes))
        start = self._next_start % len(nodes)
        ordered = [*nodes[start:], *nodes[:start]]
        if not profile.filters:
            return ordered[:wanted]
        feasible: list[NodeInfo] = []
        for node in ordered:
            status = profile.run_filters_with_nominated(state, pod, node, self._nominator)
            if status is None:
                feasible.append(node)
                if len(feasible) == wanted:
                    break
            elif status.code is Code.ERROR:
                raise PluginError(status.message)
            else:
                diagnosis.statuses.explicit[node.name] = status
                diagnosis.refused_by.add(status.plugin)
        return feasible

    def _nodes_to_find(self, profile: Profile, nodes: int) -> int:
        scoring = bool(profile.scores) or any(
            extender.is_prioritizer for extender in self.extenders
        )
        if not scoring and not any(extender.is_filter for extender in self.extenders):
            return 1
        percentage = profile.percentage_of_nodes_to_score
        return nodes_to_find(nodes, self._percentage if percentage is None else percentage)


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return numFeasibleNodesToFind, at least 100. A percentage of 0 means 50 minus one per 125
    nodes, at least 5.
    """
    if nodes < _NODES_TO_FIND_MIN:
        return nodes
    share = percentage or max(50 - nodes // 125, _PERCENTAGE_MIN)
    return max(nodes * share // 100, _NODES_TO_FIND_MIN)


async def find_nodes_that_pass_extenders(
    extenders: Sequence[Extender], pod: PodInfo, nodes: list[NodeInfo], statuses: NodeStatuses
) -> list[NodeInfo]:
    """Filter through the extenders in turn. Their reasons go into ``statuses``. Raises
    ExtenderError of an extender that is not ignorable.
    """
    for extender in extenders:
        if not nodes:
            break
        if not extender.is_interested(pod):
            continue
        try:
            result = await extender.filter(pod, nodes)
        except ExtenderError as error:
            if extender.is_ignorable:
                log.info("skipping extender %s: %s", extender.name, error)
                continue
            raise
        hopeless = result.failed_and_unresolvable or {}
        for name, reason in hopeless.items():
            statuses.explicit[name] = unresolvable(reason)
        for name, reason in (result.failed or {}).items():
            if name not in hopeless:
                statuses.explicit[name] = Status(Code.UNSCHEDULABLE, (reason,))
        nodes = result.nodes or []
    return nodes


async def prioritize_nodes(
    extenders: Sequence[Extender],
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    nodes: Sequence[NodeInfo],
    snapshot: Snapshot,
) -> list[NodeScores]:
    """Return the scores of plugins and of extenders that answer. Raises PluginError."""
    if not extenders and not profile.scores:
        return [NodeScores(node.name, {}, 1) for node in nodes]
    totals = profile.run_scores(state, pod, nodes, snapshot)
    interested = [extender for extender in extenders if extender.is_interested(pod)]
    answers = await asyncio.gather(
        *(_extender_scores(extender, pod, nodes) for extender in interested)
    )
    for extender, answer in zip(interested, answers, strict=True):
        for total in totals:
            if total.name in answer:
                total.add(extender.name, answer[total.name])
    return totals


async def _extender_scores(
    extender: Extender, pod: PodInfo, nodes: Sequence[NodeInfo]
) -> dict[str, int]:
    try:
        priorities, weight = await extender.prioritize(pod, nodes)
    except ExtenderError as error:
        log.debug("no score from extender %s for pod %s: %s", extender.name, pod.key, error)
        return {}
    scores: dict[str, int] = {}
    for priority in priorities or ():
        score = int64(priority.score * weight * (MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY))
        scores[priority.host] = int64(scores.get(priority.host, 0) + score)
    return scores


async def extenders_binding(extenders: Sequence[Extender], pod: PodInfo, node: str) -> bool:
    """Let the first interested binder bind. Return False if none did. Raises ExtenderError of an
    extender that is not ignorable.
    """
    for extender in extenders:
        if not extender.is_binder or not extender.is_interested(pod):
            continue
        try:
            await extender.bind(pod, node)
        except ExtenderError as error:
            if extender.is_ignorable:
                log.info("skipping extender %s in bind: %s", extender.name, error)
                continue
            raise
        return True
    return False
