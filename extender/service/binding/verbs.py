"""The extender's four verbs, filter, prioritize, bind and preempt: from the bytes of a request's
body to those of the reply. They ask the binder. No HTTP here.

kube-scheduler ignores the body of every reply that is not 200. So messages for it and its users go
into ``Error`` of a 200. Only a body that cannot be read raises WireError, which carries its own
HTTP status.
"""

import logging
from collections import Counter
from typing import Final

from extender.kube.api import ApiError
from extender.kube.events import EventRecorder, ObjectReference, clean_note
from extender.model.decode import as_sent, is_adapter, node_from, pod_from
from extender.model.event_reasons import EventReason
from extender.model.ledger import EMPTY_LEDGER
from extender.model.objects import AdapterPod
from extender.model.reading import Json, mapping
from extender.model.reasons import ConflictReason
from extender.node.candidates import CandidateLists
from extender.node.exposure import Alike, prioritize_known_nodes, prioritize_nodes
from extender.node.host_texts import HostTexts
from extender.node.verbs import NodeLookup, NodeVerdicts, filter_known_nodes, preempt_nodes
from extender.node.wire import (
    SCORE_MAX,
    FilterArgs,
    decode_binding_args,
    decode_cut_args,
    decode_extender_args,
    decode_preemption_args,
    encode_binding_result,
    encode_filter_result,
    encode_host_priorities,
    encode_preemption_result,
)
from extender.service.binding.binder import BindRefused, VReplicaBinder
from extender.service.binding.pod_binder import PodBinder
from extender.service.binding.reactivator import Reactivator
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import API_ERROR, Metrics
from extender.telemetry.tracing import span

log: Final = logging.getLogger(__name__)

SUCCESS, UNSCHEDULABLE, ERROR = "Success", "Unschedulable", "Error"


class ExtenderVerbs:
    """Each verb returns (body, status for the metrics).

    A dedicated kube-scheduler asks about every pod that names it. For a pod that is no adapter
    (``is_adapter``), filter passes every node, prioritize scores all nodes alike, preempt accepts
    every proposal that has victims, and bind binds the pod and adds nothing.

    An adapter pod of a pool that another installation serves (``pools.namespaces``) is refused
    everywhere. Bound from here, it would carry no ledger, and its slots would not be counted.
    """

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
        self._lists = CandidateLists()
        self._host_texts = HostTexts(caches.state.node_index)
        self.binds = 0
        """Bind requests answered with success."""
        self.bind_errors = 0

    def filter(self, body: bytes) -> tuple[bytes, str]:
        """Decide which nodes the pod may go to."""
        args = self._args(body)
        if not is_adapter(args.pod):
            return encode_filter_result(args, args.candidates, {}, {}), SUCCESS
        pod = self._pod_of(args.pod)
        verdicts = self._find(pod, args, self._lookup(args))
        for reason, refused in Counter(verdicts.reasons()).items():
            self._metrics.refused(reason, refused)
        if verdicts.passed or not args.candidates:
            self._reactivator.forget(pod.uid)
        elif self._caches.serves(pod.namespace):  # a pod of others is in no cache
            self._reactivator.note(pod, args.candidates.in_any_order.asked)
        if verdicts.passed is not args.candidates:
            self._lists.answered(verdicts.passed)
        reply = encode_filter_result(args, verdicts.passed, verdicts.failed, verdicts.unresolvable)
        return reply, SUCCESS if verdicts.passed else UNSCHEDULABLE

    def prioritize(self, body: bytes) -> tuple[bytes, str]:
        """Score the nodes, 0 to 10."""
        args = self._args(body)
        if not is_adapter(args.pod):
            return self._all_alike(args), SUCCESS
        pod, lookup = self._pod_of(args.pod), self._lookup(args)
        bind_ledger = self._binder.bind_ledger(pod.uid)
        if bind_ledger is None:  # another replica has filtered, or the result has expired
            self._find(pod, args, lookup)
            bind_ledger = self._binder.bind_ledger(pod.uid)
        # Without a result, the pool does not exist or is not served here. Then nodes score as for a
        # pod that carries nothing: prioritize only advises.
        ledger = bind_ledger.ledger if bind_ledger is not None else EMPTY_LEDGER
        state = self._caches.state
        if lookup is None and args.candidates.known:
            groups = prioritize_known_nodes(state, pod, ledger, args.candidates)
            return self._host_texts.encode(args.candidates, groups), SUCCESS
        scores = prioritize_nodes(
            state, pod, ledger, args.names, state.nodes.get if lookup is None else lookup
        )
        return encode_host_priorities(args, scores), SUCCESS

    def _all_alike(self, args: FilterArgs) -> bytes:
        if args.nodes is None and args.candidates.known:
            groups = (
                Alike(zone, SCORE_MAX, None) for zone in self._caches.state.node_index.in_zone
            )
            return self._host_texts.encode(args.candidates, groups)
        return encode_host_priorities(args, dict.fromkeys(args.names, SCORE_MAX))

    async def bind(self, body: bytes) -> tuple[bytes, str]:
        """Bind the pod with its vreplicas. The reason of a refusal is in ``Error`` and in an event
        on the pod.
        """
        args = decode_binding_args(body)
        try:
            with span("bind_pod", pod=f"{args.pod_namespace}/{args.pod_name}", node=args.node):
                await self._pod_binder.bind(
                    args.pod_namespace, args.pod_name, args.pod_uid, args.node
                )
        except (BindRefused, ApiError) as error:
            log.info(
                "bind of pod %s/%s to %s refused: %s",
                args.pod_namespace,
                args.pod_name,
                args.node,
                error,
                extra={
                    "pod": f"{args.pod_namespace}/{args.pod_name}",
                    "node": args.node,
                    "reason": _reason_of(error),
                },
            )
            self.bind_errors += 1
            self._metrics.refused(_reason_of(error))
            self._recorder.event(
                ObjectReference("v1", "Pod", args.pod_namespace, args.pod_name, args.pod_uid),
                reason=EventReason.FAILED_BINDING,
                note=f"bind to node {args.node} refused: {error}",
                cause=_reason_of(error),
            )
            return encode_binding_result(clean_note(str(error))), ERROR
        self.binds += 1
        return encode_binding_result(), SUCCESS

    def preempt(self, body: bytes) -> tuple[bytes, str]:
        """Choose from the proposed nodes: those where preemption helps and costs least
        (``preempt_nodes``).
        """
        args = decode_preemption_args(body)
        if is_adapter(args.pod):
            chosen = preempt_nodes(self._caches.state, self._pod_of(args.pod), args.victims)
        else:
            chosen = {name: victims for name, victims in args.victims.items() if victims.uids}
        return encode_preemption_result(args, chosen), SUCCESS if chosen else UNSCHEDULABLE

    def _args(self, body: bytes) -> FilterArgs:
        index = self._caches.state.node_index
        cut = self._lists.cut(body, index.names, index.revision)
        if cut is not None and (args := decode_cut_args(*cut)) is not None:
            return args
        return decode_extender_args(body, index.names)

    def _pod_of(self, obj: Json) -> AdapterPod:
        """Decode the pod that was sent. If the cache has this version, return that one instead."""
        metadata = mapping(obj, "metadata")
        known = self._caches.pods.get(f"{metadata.get('namespace')}/{metadata.get('name')}")
        # An assumed pod has the same version but not the same content.
        return as_sent(obj, None if known is not None and known.assumed else known, pod_from)

    def _find(self, pod: AdapterPod, args: FilterArgs, lookup: NodeLookup | None) -> NodeVerdicts:
        """Which nodes may have the pod. The binder keeps the result, unless the pool is not served
        here or does not exist: its name may be any text.
        """
        if not self._caches.serves(pod.namespace):
            return NodeVerdicts.none_passes(args.names, ConflictReason.POOL_NOT_SERVED)
        if pod.pool not in self._caches.state.pools:
            return filter_known_nodes(self._caches.state, pod, args.candidates)
        return self._binder.find(pod, args.candidates, lookup)

    def _lookup(self, args: FilterArgs) -> NodeLookup | None:
        """The nodes that kube-scheduler sent (without nodeCacheCapable), if they differ from the
        cached ones. None: use the cached nodes.
        """
        if args.nodes is None:
            return None
        known = self._caches.state.nodes
        sent = {
            name: as_sent(node, known.get(name), node_from)
            for name, node in zip(args.names, args.nodes, strict=True)
        }
        return sent.get if any(known.get(name) is not node for name, node in sent.items()) else None


def _reason_of(error: BindRefused | ApiError) -> str:
    return str(error.reason) if isinstance(error, BindRefused) else API_ERROR
