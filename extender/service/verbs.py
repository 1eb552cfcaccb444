"""The extender's four verbs: bytes in, bytes out, around the binder. No HTTP here.

kube-scheduler loses the body of every answer that is not 200, so what it and its users shall read goes into a 200's
``Error``. Only a body that cannot be read is a WireError, answered with its own status.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from extender.core.decode import node_from, pod_from
from extender.core.ledger import EMPTY_LEDGER
from extender.core.model import AdapterPod, Node
from extender.core.names import POOL_LABEL
from extender.core.node_level.exposure import prioritize_nodes
from extender.core.verbs import NodeVerdicts, filter_nodes, preempt_nodes
from extender.core.wire import (
    SCORE_MAX,
    FilterArgs,
    Json,
    decode_binding_args,
    decode_extender_args,
    decode_preemption_args,
    encode_binding_result,
    encode_filter_result,
    encode_host_priorities,
    encode_preemption_result,
)
from extender.kube.api import ApiError
from extender.kube.events import EventRecorder, EventType, ObjectReference, clean_note
from extender.metrics import Metrics
from extender.service.binder import BindRefused, VReplicaBinder
from extender.service.caches import Caches
from extender.service.pod_binder import PodBinder
from extender.service.reactivator import Reactivator

log: Final = logging.getLogger(__name__)

SUCCESS, UNSCHEDULABLE, ERROR = "Success", "Unschedulable", "Error"


class ExtenderVerbs:
    """Answers a verb with (body, status for the metrics)."""

    def __init__(
        self,
        caches: Caches,
        binder: VReplicaBinder,
        pod_binder: PodBinder,
        *,
        reactivator: Reactivator,
        recorder: EventRecorder,
        metrics: Metrics,
    ) -> None:
        self._caches = caches
        self._binder = binder
        self._pod_binder = pod_binder
        self._reactivator = reactivator
        self._recorder = recorder
        self._metrics = metrics
        self.binds = 0
        """Bind requests answered with success."""
        self.bind_errors = 0

    def filter(self, body: bytes) -> tuple[bytes, str]:
        """Which nodes the pod may go to. A pod without our label is none of our business: every node passes."""
        args = decode_extender_args(body)
        if not _is_adapter(args.pod):
            return encode_filter_result(args, args.names, {}, {}), SUCCESS
        pod = pod_from(args.pod)
        verdicts = self._find(pod, args.names, self._lookup(args))
        for reason in {*verdicts.failed.values(), *verdicts.unresolvable.values()}:
            refused = [*verdicts.failed.values(), *verdicts.unresolvable.values()].count(reason)
            self._metrics.refused(reason, refused)
        if verdicts.passed or not args.names:
            self._reactivator.forget(pod.uid)
        else:
            self._reactivator.note(pod, args.names)
        reply = encode_filter_result(args, verdicts.passed, verdicts.failed, verdicts.unresolvable)
        return reply, SUCCESS if verdicts.passed else UNSCHEDULABLE

    def prioritize(self, body: bytes) -> tuple[bytes, str]:
        """How good the nodes are, 0 to 10. A pod without our label: all equal."""
        args = decode_extender_args(body)
        if not _is_adapter(args.pod):
            return encode_host_priorities(args, dict.fromkeys(args.names, SCORE_MAX)), SUCCESS
        pod, lookup = pod_from(args.pod), self._lookup(args)
        decisions = self._binder.decisions(pod.uid)
        if not decisions:  # another replica has filtered
            self._find(pod, args.names, lookup)
            decisions = self._binder.decisions(pod.uid)
        carry = next((decision.carry for decision in decisions.values()), None)
        ledger = carry.ledger if carry is not None else EMPTY_LEDGER
        scores = prioritize_nodes(self._caches.state, pod, ledger, args.names, lookup)
        return encode_host_priorities(args, scores), SUCCESS

    async def bind(self, body: bytes) -> tuple[bytes, str]:
        """Bind the pod with its vreplicas. What is refused says why in ``Error``, and in an event on the pod."""
        args = decode_binding_args(body)
        try:
            await self._pod_binder.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        except (BindRefused, ApiError) as error:
            log.info(
                "bind of pod %s/%s to %s refused: %s", args.pod_namespace, args.pod_name, args.node, error
            )
            self.bind_errors += 1
            self._metrics.refused(str(error.reason) if isinstance(error, BindRefused) else "ApiError")
            self._recorder.event(
                ObjectReference("v1", "Pod", args.pod_namespace, args.pod_name, args.pod_uid),
                type=EventType.WARNING,
                reason="FailedBinding",
                action="Binding",
                note=f"bind to node {args.node} refused: {error}",
            )
            return encode_binding_result(clean_note(str(error))), ERROR
        self.binds += 1
        return encode_binding_result(), SUCCESS

    def preempt(self, body: bytes) -> tuple[bytes, str]:
        """Which of the proposed nodes to preempt on: those that would help, where the fewest vreplicas are evicted."""
        args = decode_preemption_args(body)
        if _is_adapter(args.pod):
            pod, nodes = pod_from(args.pod), self._caches.state.nodes
            chosen = preempt_nodes(self._caches.state, pod, args.victims, nodes.get)
        else:
            chosen = {name: victims for name, victims in args.victims.items() if victims.uids}
        return encode_preemption_result(args, chosen), SUCCESS if chosen else UNSCHEDULABLE

    def _find(
        self, pod: AdapterPod, nodes: Sequence[str], lookup: Callable[[str], Node | None]
    ) -> NodeVerdicts:
        """A pool that does not exist has nothing for the pod to carry, and its name, any text, is not remembered."""
        if pod.pool not in self._caches.state.pools:
            return filter_nodes(self._caches.state, pod, nodes, lookup)
        return self._binder.find(pod, nodes, lookup)

    def _lookup(self, args: FilterArgs) -> Callable[[str], Node | None]:
        """Nodes as kube-scheduler sent them, which it did unless nodeCacheCapable; else as we know them."""
        if args.nodes is None:
            return self._caches.state.nodes.get
        sent = {node.name: node for node in map(node_from, args.nodes)}
        return sent.get


def _is_adapter(pod: Json) -> bool:
    metadata = pod.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and POOL_LABEL in labels
