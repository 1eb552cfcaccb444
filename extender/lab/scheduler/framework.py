"""The part of the scheduling framework that is used here: the plugin interfaces, and how a profile
runs plugins.

A plugin's ``pre_filter`` looks at the whole snapshot once, and stores its results in the
``CycleState``. ``filter`` then answers for each node. When preemption or nominated pods are tried
out, on a clone, ``add_pod`` and ``remove_pod`` keep that state up to date. A plugin that does not
apply to the pod skips itself, and is not called again in the cycle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.types import (
    MAX_NODE_SCORE,
    Code,
    NodeInfo,
    PodInfo,
    Status,
    unresolvable,
)
from extender.model.errors import VReplicaError


class StateData(Protocol):
    """The state of one plugin for one cycle."""

    def clone(self) -> Self:
        """Return a copy whose counts may change. Parts that never change may be shared."""
        ...


class FixedState:
    """The state of a plugin that never changes once it is stored."""

    __slots__ = ()

    def clone(self) -> Self:
        """Return itself."""
        return self


S = TypeVar("S", bound=StateData)


class CycleState:
    """The plugins' state for one scheduling cycle."""

    def __init__(self) -> None:
        self._data: dict[type[StateData], StateData] = {}
        self.skip_filter: set[str] = set()

    def write(self, value: StateData) -> None:
        """Store a plugin's state under its own type."""
        self._data[type(value)] = value

    def find(self, kind: type[S]) -> S | None:
        """Return the state that is stored under a type, if any."""
        value = self._data.get(kind)
        return value if isinstance(value, kind) else None

    def read(self, kind: type[S]) -> S:
        """Return what the plugin has stored under a type. A plugin that has stored nothing has
        skipped itself, and is not called.
        """
        value = self.find(kind)
        assert value is not None
        return value

    def clone(self) -> "CycleState":
        """Return a copy for a trial."""
        copy = CycleState()
        copy._data = {kind: value.clone() for kind, value in self._data.items()}
        copy.skip_filter = self.skip_filter
        return copy


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The result of pre_filter: ``skip`` the plugin, a ``status`` that refuses the pod, or the only
    ``nodes`` that may fit.
    """

    skip: bool = False
    status: Status | None = None
    nodes: frozenset[str] | None = None


PROCEED = PreFilterResult()
SKIP = PreFilterResult(skip=True)


class FilterPlugin(Protocol):
    """A plugin that refuses nodes. One instance serves all cycles of its profile, one at a time."""

    @property
    def name(self) -> str:
        """The name in Kubernetes' plugin registry."""
        ...

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Look at the whole snapshot once."""
        ...

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return None if the pod fits the node."""
        ...

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Update the state: ``other`` is added to ``node``."""
        ...

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Update the state: ``other`` is removed from ``node``."""
        ...


class NodeLocalFilter:
    """A filter that depends only on the node and keeps no state."""

    def pre_filter(self, _state: CycleState, _pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Return PROCEED."""
        return PROCEED

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Do nothing: the node has the pod."""

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Do nothing: the node no longer has the pod."""


class CountingFilter:
    """A filter whose state has counts of pods, which ``count`` keeps up to date."""

    def count(
        self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, change: int
    ) -> None:
        """Count ``other`` on ``node``: ``change`` 1 adds it, -1 removes it."""
        raise NotImplementedError

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Add another pod to the counts."""
        self.count(state, pod, other, node, 1)

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Remove another pod from the counts."""
        self.count(state, pod, other, node, -1)


class ScorePlugin(Protocol):
    """A plugin that scores nodes, from 0 to 100 after ``normalize``."""

    @property
    def name(self) -> str:
        """The name in Kubernetes' plugin registry."""
        ...

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot
    ) -> bool:
        """Look at the cluster once. Return False to skip the plugin; all its scores are then 0."""
        ...

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the raw score of a node."""
        ...

    def normalize(
        self, state: CycleState, scores: list[int], nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Scale the raw scores of all nodes to 0..100."""
        ...


class PlainScore:
    """A score of every pod, which needs no look at the cluster and no scaling."""

    def pre_score(
        self, _state: CycleState, _pod: PodInfo, _nodes: Sequence[NodeInfo], _snapshot: Snapshot
    ) -> bool:
        """Score every pod."""
        return True

    def normalize(
        self, _state: CycleState, scores: list[int], _nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Return the scores, which are 0..100 already."""
        return scores


class ReservePlugin(Protocol):
    """A plugin that holds something for a pod from the decision to the bind: the extension points
    Reserve and PreBind.
    """

    @property
    def name(self) -> str:
        """The name in Kubernetes' plugin registry."""
        ...

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Reserve on the chosen node. Return an error; ``unreserve`` is called then too."""
        ...

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Give up what is reserved. Called after any failure, perhaps without a ``reserve``."""
        ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Do what must be done before the bind. Return an error."""
        ...


@dataclass(slots=True)
class NodeScores:
    """One node's weighted scores by plugin or extender name, and their int64 sum."""

    name: str
    scores: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def add(self, source: str, score: int) -> None:
        """Add one weighted score. Sums wrap like Go's int64."""
        self.scores[source] = int64(self.scores.get(source, 0) + score)
        self.total = int64(self.total + score)


def int64(value: int) -> int:
    """Return an int wrapped like Go's int64."""
    return (value + 2**63) % 2**64 - 2**63


def truncated(numerator: int, denominator: int) -> int:
    """Divide like Go: round towards zero."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


class Nominator(Protocol):
    """Knows the pods that wait for room which preemption makes."""

    def nominated_pods(self, node: str) -> Iterable[PodInfo]:
        """Return the pods nominated to the node."""
        ...


class PluginError(VReplicaError):
    """A plugin returned an invalid result."""


@dataclass(slots=True)
class NodeStatuses:
    """The status of each evaluated node, and of all others (``absent``): NodeToStatus."""

    explicit: dict[str, Status] = field(default_factory=dict)
    absent: Status = field(default_factory=unresolvable)

    def get(self, node: str) -> Status:
        """Return a node's status."""
        return self.explicit.get(node, self.absent)


@dataclass(slots=True)
class PreFilterOutcome:
    """The result of all pre_filters. ``plugins`` are those that returned nodes."""

    status: Status | None = None
    nodes: frozenset[str] | None = None
    plugins: frozenset[str] = frozenset()


@dataclass(slots=True)
class Profile:
    """One kube-scheduler profile: its plugins in order, and the percentage of nodes to score (None:
    the global setting). ``run_all_filters``: ask every filter about a node that one has refused
    (alwaysCheckAllPredicates).
    """

    filters: Sequence[FilterPlugin]
    scores: Sequence[tuple[ScorePlugin, int]]
    percentage_of_nodes_to_score: int | None = None
    run_all_filters: bool = False
    reserves: Sequence[ReservePlugin] = ()

    def run_pre_filters(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterOutcome:
        """RunPreFilterPlugins: stop at an unresolvable refusal; return a resolvable one last."""
        nodes: frozenset[str] | None = None
        named: list[str] = []
        refused: Status | None = None
        for plugin in self.filters:
            result = plugin.pre_filter(state, pod, snapshot)
            if result.skip:
                state.skip_filter.add(plugin.name)
                continue
            if result.status is not None:
                status = Status(result.status.code, result.status.reasons, plugin.name)
                if status.code is not Code.UNSCHEDULABLE:
                    return PreFilterOutcome(status=status)
                refused = status
                continue
            if result.nodes is not None:
                named.append(plugin.name)
                nodes = result.nodes if nodes is None else nodes & result.nodes
                if not nodes:
                    return PreFilterOutcome(_no_common_node(named), nodes, frozenset(named))
        return PreFilterOutcome(refused, nodes, frozenset(named))

    def run_filters(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the first refusal in plugin order, or all as one (PluginToStatus.Merge)."""
        merged: Status | None = None
        for plugin in self.filters:
            if plugin.name in state.skip_filter:
                continue
            status = plugin.filter(state, pod, node)
            if status is None:
                continue
            if status.code is Code.ERROR:
                text = f'running "{plugin.name}" filter plugin: {status.message}'
                return Status(status.code, (text,), plugin.name)
            merged = _merged(merged, Status(status.code, status.reasons, plugin.name))
            if not self.run_all_filters:
                break
        return merged

    def run_filters_with_nominated(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, nominator: Nominator
    ) -> Status | None:
        """Filter twice: with the pods of equal or higher priority that are nominated to the node,
        and without them. The pod must fit both times.
        """
        waiting = [
            other
            for other in nominator.nominated_pods(node.name)
            if other.priority >= pod.priority
            and other.uid != pod.uid
            and other.uid not in node.pods
        ]
        if waiting:
            trial_state, trial_node = state.clone(), node.clone()
            for other in waiting:
                trial_node.add_pod(other)
                self.add_pod(trial_state, pod, other, trial_node)
            status = self.run_filters(trial_state, pod, trial_node)
            if status is not None:
                return status
        return self.run_filters(state, pod, node)

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Tell the plugins that ``other`` was added to ``node``."""
        for plugin in self.filters:
            if plugin.name not in state.skip_filter:
                plugin.add_pod(state, pod, other, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Tell the plugins that ``other`` was removed from ``node``."""
        for plugin in self.filters:
            if plugin.name not in state.skip_filter:
                plugin.remove_pod(state, pod, other, node)

    def run_reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Reserve with all plugins. Return the first error; the caller then unreserves."""
        for plugin in self.reserves:
            if (status := plugin.reserve(state, pod, node)) is not None:
                text = f'running Reserve plugin "{plugin.name}": {status.message}'
                return Status(status.code, (text,), plugin.name)
        return None

    def run_unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Unreserve with all plugins, the last one first."""
        for plugin in reversed(self.reserves):
            plugin.unreserve(state, pod, node)

    async def run_pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Run PreBind of all plugins. Return the first error."""
        for plugin in self.reserves:
            if (status := await plugin.pre_bind(state, pod, node)) is not None:
                text = f'running PreBind plugin "{plugin.name}": {status.message}'
                return Status(status.code, (text,), plugin.name)
        return None

    def run_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot
    ) -> list[NodeScores]:
        """Return the nodes' weighted scores in order. Raises PluginError for one not in 0..100."""
        totals = [NodeScores(node.name) for node in nodes]
        for plugin, weight in self.scores:
            if not plugin.pre_score(state, pod, nodes, snapshot):
                continue
            raw = [plugin.score(state, pod, node) for node in nodes]
            for total, score in zip(totals, plugin.normalize(state, raw, nodes), strict=True):
                if not 0 <= score <= MAX_NODE_SCORE:
                    raise PluginError(
                        f'plugin "{plugin.name}" returns an invalid score {score}, '
                        f"it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
                    )
                total.add(plugin.name, score * weight)
        return totals


def _merged(first: Status | None, second: Status) -> Status:
    """One status with the reasons of both, and the code and plugin of the more final one."""
    if first is None:
        return second
    final = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    most = second if second.code is final and first.code is not final else first
    return Status(most.code, (*first.reasons, *second.reasons), most.plugin)


def _no_common_node(plugins: list[str]) -> Status:
    names = sorted(set(plugins))
    if len(names) == 1:
        reason = f"node(s) didn't satisfy plugin {names[0]}"
    else:
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,), names[0])
