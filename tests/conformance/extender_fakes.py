"""Objects as the API server serves them, and upstream's FakeExtender and fake plugins, built from a
case.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from extender.lab.scheduler.cache import SchedulerCache, Snapshot
from extender.lab.scheduler.extender_client import (
    ExtenderError,
    FilterResult,
    HostPriority,
    NodeLister,
    Victims,
)
from extender.lab.scheduler.framework import CycleState, NodeLocalFilter, NodeStatuses, ScorePlugin
from extender.lab.scheduler.priorities import NodeResourcesBalancedAllocation
from extender.lab.scheduler.queue import SchedulingQueue
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, Status, node_view, pod_info
from tests.conformance.result import Case, Difference

Outcome = str | Difference | None


def differs(what: str, expected: object, got: object) -> str | None:
    return None if expected == got else f"{what}: expected {expected!r}, got {got!r}"


def first(*outcomes: str | None) -> str | None:
    return next((outcome for outcome in outcomes if outcome), None)


# Objects


def a_pod(
    name: str = "p", *, namespace: str = "ns", node: str = "", uid: str = "", **spec: Any
) -> PodInfo:
    """A pod as the API server serves it."""
    full: dict[str, Any] = {"containers": None, **spec}
    if node:
        full["nodeName"] = node
    return pod_info(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"},
            "spec": full,
            "status": {},
        }
    )


def a_bare_pod(name: str) -> PodInfo:
    """A pod of a preempt case: it has a name and a UID, and neither namespace nor node of
    its own.
    """
    metadata = {"name": name, "uid": f"uid-{name}"}
    return pod_info({"metadata": metadata, "spec": {"containers": None}, "status": {}})


def a_node(name: str, capacity: Mapping[str, str] | None = None) -> NodeInfo:
    """A node as the API server serves it."""
    status: dict[str, Any] = {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": dict.fromkeys(
            (
                "architecture",
                "bootID",
                "containerRuntimeVersion",
                "kernelVersion",
                "kubeProxyVersion",
                "kubeletVersion",
                "machineID",
                "operatingSystem",
                "osImage",
                "systemUUID",
            ),
            "",
        ),
    }
    if capacity is not None:
        status["allocatable"] = {"pods": "110", **capacity}
    return NodeInfo(node_view({"metadata": {"name": name}, "spec": {}, "status": status}))


def a_snapshot(nodes: Sequence[NodeInfo], pods: Sequence[PodInfo] = ()) -> Snapshot:
    cache = SchedulerCache()
    for node in nodes:
        cache.put_node(node.view)
    for pod in pods:
        cache.put_pod(pod)
    return cache.snapshot()


def a_queue() -> SchedulingQueue:
    return SchedulingQueue(clock=lambda: 0.0)


# Upstream's fakes


class FakeExtender:
    """FakeExtender of upstream's tests, from a case's description."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self.name = str(raw.get("name", "FakeExtender"))
        self.is_ignorable = bool(raw.get("ignorable"))
        self.is_filter = bool(raw.get("predicates") or raw.get("verdicts"))
        self.is_prioritizer = bool(raw.get("prioritizers"))
        self.is_binder = bool(raw.get("binder"))
        self.supports_preemption = bool(raw.get("supports_preemption", True))
        self.bound = False

    def is_interested(self, pod: PodInfo) -> bool:
        if "interested_pod" in self._raw:
            return bool(pod.name == self._raw["interested_pod"])
        return not self._raw.get("uninterested")

    def _verdict(self, node: str) -> str:
        verdicts = self._raw.get("verdicts", {}).get("per_node")
        if verdicts is not None:
            return str(verdicts.get(node, verdicts.get("other", "Success")))
        for predicate in self._raw.get("predicates") or ():
            if predicate == "error":
                raise ExtenderError("some error")
            if predicate != "true" and predicate != node:
                return "Unschedulable"
        return "Success"

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterResult:
        verdicts = {node.name: self._verdict(node.name) for node in nodes}
        return FilterResult(
            [node for node in nodes if verdicts[node.name] == "Success"],
            {
                n: f'FakeExtender: node "{n}" failed'
                for n, v in verdicts.items()
                if v == "Unschedulable"
            },
            {
                n: f'FakeExtender: node "{n}" failed and unresolvable'
                for n, v in verdicts.items()
                if v == "UnschedulableAndUnresolvable"
            },
        )

    async def prioritize(
        self, pod: PodInfo, nodes: Sequence[NodeInfo]
    ) -> tuple[list[HostPriority] | None, int]:
        totals = dict.fromkeys((node.name for node in nodes), 0)
        for prioritizer in self._raw.get("prioritizers") or ():
            if not prioritizer["weight"]:
                continue
            if prioritizer["function"] == "error":
                raise ExtenderError("some error")
            for name in totals:
                totals[name] += (10 if name == prioritizer["function"] else 1) * prioritizer[
                    "weight"
                ]
        return [HostPriority(name, score) for name, score in totals.items()], int(
            self._raw.get("weight", 0)
        )

    async def bind(self, pod: PodInfo, node: str) -> None:
        if self._raw.get("bind_error"):
            raise ExtenderError("bind error")
        self.bound = True

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], nodes: NodeLister
    ) -> dict[str, Victims]:
        if self._raw.get("error"):
            raise ExtenderError("extender preempt error")
        if self._raw.get("returns_no_victims"):
            return {"mock": Victims(())}
        return {node: entry for node, entry in victims.items() if self._verdict(node) == "Success"}


class FakeFilter(NodeLocalFilter):
    """TrueFilter, or FakeFilter with the nodes that it fails."""

    def __init__(self, name: str, fails: Mapping[str, str]) -> None:
        self.name = name
        self._fails = fails

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.name not in self._fails:
            return None
        code = next(code for code in Code if code.label == self._fails[node.name])
        return Status(code, (f"injecting failure for pod {pod.name}",))


class FakeScore:
    """Node2Prioritizer and EqualPrioritizerPlugin."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot
    ) -> bool:
        return True

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        if self.name == "Node2Prioritizer":
            return 100 if node.name == "node2" else 10
        return 1

    def normalize(
        self, state: CycleState, scores: list[int], nodes: Sequence[NodeInfo]
    ) -> list[int]:
        return scores


def fake_extenders(case: Case) -> list[FakeExtender]:
    fakes = [FakeExtender(raw) for raw in case.get("extenders", ())]
    return sorted(fakes, key=lambda fake: fake.is_ignorable)


def fake_filters(case: Case) -> list[FakeFilter]:
    return [
        FakeFilter(raw, {})
        if isinstance(raw, str)
        else FakeFilter(raw["name"], raw.get("fails", {}))
        for raw in case["filter_plugins"]
    ]


def fake_scores(case: Case) -> list[tuple[ScorePlugin, int]]:
    balanced = NodeResourcesBalancedAllocation
    return [
        (balanced() if raw["name"] == balanced.name else FakeScore(raw["name"]), raw["weight"])
        for raw in case.get("score_plugins", ())
    ]


def described(statuses: NodeStatuses) -> dict[str, dict[str, str]]:
    return {
        node: {"code": status.code.label, "message": status.message}
        for node, status in statuses.explicit.items()
    }
