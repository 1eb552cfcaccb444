"""What the embedded kube-scheduler makes of a case: the same objects through its informers'
handlers, its algorithm and its preemption.

The objects are those that kube-apiserver stored, so that only scheduling is compared: defaults and
admission are another part's.
"""

import random
from collections.abc import Mapping, Sequence

from extender.kube.api import NAMESPACES as NAMESPACE_KIND, Obj
from extender.lab.scheduler.algorithm import (
    FitError,
    SchedulingAlgorithm,
    SchedulingError,
    prioritize_nodes,
)
from extender.lab.scheduler.cache import SchedulerCache
from extender.lab.scheduler.extender_client import FilterResult, HostPriority, NodeLister, Victims
from extender.lab.scheduler.framework import CycleState
from extender.lab.scheduler.informers import ClusterWatcher
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.preemption import Preemptor
from extender.lab.scheduler.priorities import default_profile
from extender.lab.scheduler.queue import SchedulingQueue
from extender.lab.scheduler.select_host import at_random
from extender.lab.scheduler.types import NodeInfo, PodInfo, pod_info
from tests.differential.scheduler_cases import NAMESPACE_LABELS, SchedulerCase, pod_key
from tests.differential.scheduler_real import SEEN, Scores, Verdict


class RefusingExtender:
    """Remembers the nodes that filter is asked about, and refuses them all."""

    name = "seen"
    is_ignorable = is_prioritizer = is_binder = supports_preemption = False
    is_filter = True

    def __init__(self) -> None:
        self.asked: list[NodeInfo] = []

    def is_interested(self, pod: PodInfo) -> bool:
        """Whether the pod has anything to do with it: all have."""
        return True

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterResult:
        """Which of these nodes fit: none."""
        self.asked = list(nodes)
        return FilterResult([], {node.name: SEEN for node in nodes}, {})

    async def prioritize(
        self, pod: PodInfo, nodes: Sequence[NodeInfo]
    ) -> tuple[list[HostPriority] | None, int]:
        """Never asked."""
        raise NotImplementedError

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Never asked."""
        raise NotImplementedError

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], nodes: NodeLister
    ) -> dict[str, Victims]:
        """Never asked."""
        raise NotImplementedError


class EmbeddedScheduler:
    """The scheduler with one case in its cache."""

    def __init__(self, case: SchedulerCase) -> None:
        self._rng = random.Random(1)
        self._cache = SchedulerCache()
        self._listers = Listers()
        self._queue = SchedulingQueue(
            clock=lambda: 0.0, initial_backoff_s=1.0, max_backoff_s=1.0, gate=lambda _: ""
        )
        self._profile = default_profile(self._listers, percentage_of_nodes_to_score=100)
        watcher = ClusterWatcher(self._cache, self._queue, self._listers, lambda _: True)
        for name, labels in NAMESPACE_LABELS.items():
            namespace = {
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/metadata.name": name, **labels},
                }
            }
            self._listers.stores[NAMESPACE_KIND][name] = namespace
        stores = {resource.kind: store for resource, store in self._listers.stores.items()}
        for obj in case.lookups:
            if (store := stores.get(obj["kind"])) is not None:
                store[_key(obj)] = obj
        for node in case.nodes:
            watcher.on_node(None, node)
        for pod in case.running:
            watcher.on_pod(None, pod)

    async def verdict(self, pod: Obj) -> Verdict:
        """The verdict on one pending pod."""
        info, state, snapshot = pod_info(pod), CycleState(), self._cache.snapshot()
        extender = RefusingExtender()
        algorithm = SchedulingAlgorithm([extender], self._queue, at_random(self._rng))
        try:
            await algorithm.schedule_pod(self._profile, state, info, snapshot)
        except SchedulingError as error:
            return Verdict(frozenset(), str(error), {})
        except FitError as error:
            preemptor = Preemptor([extender], self._queue, self._listers, self._rng)
            found = await preemptor.run_post_filters(
                self._profile, state, info, error.diagnosis, snapshot
            )
            error.diagnosis.post_filter_message = found.message
            text = str(error)
        else:
            raise AssertionError("the extender refuses every node")
        scores: Scores = {}
        if len(extender.asked) > 1:
            nodes = await prioritize_nodes([], self._profile, state, info, extender.asked, snapshot)
            scores = {node.name: dict(node.scores) for node in nodes}
        return Verdict(frozenset(node.name for node in extender.asked), text, scores)


async def embedded_verdicts(case: SchedulerCase) -> dict[str, Verdict]:
    """The verdict on each pending pod; none of them changes the cluster."""
    scheduler = EmbeddedScheduler(case)
    return {pod_key(pod): await scheduler.verdict(pod) for pod in case.pending}


def _key(obj: Obj) -> str:
    metadata = obj["metadata"]
    return pod_key(obj) if metadata.get("namespace") else str(metadata["name"])
