"""``HTTPExtender``: kube-scheduler's client for extenders. Requests and the handling of answers are
as in kube-scheduler.

It sends POST ``<prefix without trailing slashes>/<verb>`` with capitalised keys. Only status 200
counts, and the body is read by Go's rules (``go_json``). With nodeCacheCapable, node names are sent
and expected back, else whole nodes. Every failure is an ``ExtenderError`` with kube-scheduler's own
text, because these texts appear in FailedScheduling events.

A ``Transport`` carries the bytes, so that a simulation needs no sockets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from extender.config.kube_scheduler import DEFAULT_HTTP_TIMEOUT_S, ExtenderConfig
from extender.kube.api import Obj
from extender.lab.scheduler import go_json
from extender.lab.scheduler.extender_transport import Transport, TransportError
from extender.lab.scheduler.types import NodeInfo, PodInfo, node_view
from extender.model.errors import VReplicaError
from extender.model.reading import mapping, mappings


class ExtenderError(VReplicaError):
    """An extender refused or failed, or its answer cannot be used. The text is kube-scheduler's."""


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods to preempt on one node, most important first, and the number of disruption budgets
    that this violates.
    """

    pods: tuple[PodInfo, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The answer to filter. ``nodes`` None: the answer had no list, so no node fits. The maps are
    node name -> reason.
    """

    nodes: list[NodeInfo] | None
    failed: Mapping[str, str] | None
    failed_and_unresolvable: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class HostPriority:
    """One node's score. That it is from 0 to 10 is only a convention."""

    host: str
    score: int


class NodeLister(Protocol):
    """Finds nodes by name (the cycle's snapshot)."""

    def get(self, name: str) -> NodeInfo:
        """Return the node. Raises a VReplicaError for an unknown name."""
        ...


class Extender(Protocol):
    """An extender as the scheduling cycle uses it. Filter and preempt calls come one at a time,
    binds concurrently.
    """

    name: str
    """Its URL prefix, which names it in scores."""
    is_ignorable: bool
    """Whether scheduling goes on when it fails."""
    is_filter: bool
    is_prioritizer: bool
    is_binder: bool
    supports_preemption: bool
    """Whether it has the verb: filter, prioritize, bind and preempt."""

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether the extender must be called for the pod."""
        ...

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterResult:
        """Return the nodes that fit. Raises ExtenderError."""
        ...

    async def prioritize(
        self, pod: PodInfo, nodes: Sequence[NodeInfo]
    ) -> tuple[list[HostPriority] | None, int]:
        """Return scores, and the weight to multiply them with. Raises ExtenderError."""
        ...

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Bind the pod. Raises ExtenderError."""
        ...

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], nodes: NodeLister
    ) -> dict[str, Victims]:
        """Return the nodes on which preemption helps, with their victims. Raises ExtenderError."""
        ...


_STRING_MAP = go_json.map_of(go_json.string, "v1.FailedNodesMap", str)
_META_POD = go_json.struct("MetaPod", {"UID": go_json.string})
_META_VICTIMS = go_json.struct(
    "MetaVictims",
    {
        "Pods": go_json.slice_of(
            go_json.pointer_to(_META_POD, lambda: {"UID": ""}), "[]*v1.MetaPod", lambda: None
        ),
        "NumPDBViolations": go_json.integer,
    },
)


def _node_item(context: Any, value: Any, _before: Any) -> Any:
    if not isinstance(value, go_json.Pairs):
        if value is not None:
            context.mismatch(value, "v1.Node")
        return {}
    return go_json.plain(value)


_NODE_LIST = go_json.struct("NodeList", {"items": go_json.slice_of(_node_item, "[]v1.Node", dict)})
_FILTER_RESULT = go_json.struct(
    "ExtenderFilterResult",
    {
        "Nodes": go_json.pointer_to(_NODE_LIST, dict),
        "NodeNames": go_json.slice_of(go_json.string, "[]string", str),
        "FailedNodes": _STRING_MAP,
        "FailedAndUnresolvableNodes": _STRING_MAP,
        "Error": go_json.string,
    },
)
_BINDING_RESULT = go_json.struct("ExtenderBindingResult", {"Error": go_json.string})
_PREEMPTION_RESULT = go_json.struct(
    "ExtenderPreemptionResult",
    {
        "NodeNameToMetaVictims": go_json.map_of(
            go_json.pointer_to(_META_VICTIMS, dict), "map[string]*v1.MetaVictims", lambda: None
        )
    },
)
_HOST_PRIORITY = go_json.struct("HostPriority", {"Host": go_json.string, "Score": go_json.integer})
_HOST_PRIORITY_LIST = go_json.slice_of(
    _HOST_PRIORITY, "v1.HostPriorityList", lambda: {"Host": "", "Score": 0}
)


def to_meta_victims(victims: Mapping[str, Victims]) -> Obj:
    """Return NodeNameToMetaVictims, which names pods only by UID."""
    return {
        node: {
            "Pods": [{"UID": pod.uid} for pod in entry.pods],
            "NumPDBViolations": entry.pdb_violations,
        }
        for node, entry in victims.items()
    }


def _wire_pod(pod: PodInfo) -> Obj:
    """Return the pod as the scheduler's informer keeps it: without some metadata and type."""
    obj = {key: value for key, value in pod.obj.items() if key not in {"kind", "apiVersion"}}
    if "managedFields" in obj.get("metadata", {}):
        obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return obj


def _wire_node(node: NodeInfo) -> Obj:
    return {key: value for key, value in node.view.obj.items() if key not in {"kind", "apiVersion"}}


class HTTPExtender:
    """One configured extender."""

    def __init__(self, config: ExtenderConfig, transport: Transport) -> None:
        self._config = config
        self._transport = transport
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self.name = config.url_prefix
        self.is_ignorable = config.ignorable
        self.is_filter = bool(config.filter_verb)
        self.is_prioritizer = bool(config.prioritize_verb)
        self.is_binder = bool(config.bind_verb)
        self.supports_preemption = bool(config.preempt_verb)

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether a container requests or limits a managed resource. An extender without
        managed resources takes every pod.
        """
        if not self._managed:
            return True
        return any(
            name in self._managed
            for kind in ("containers", "initContainers")
            for container in mappings(pod.obj, "spec", kind)
            for section in ("requests", "limits")
            for name in mapping(container, "resources", section)
        )

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterResult:
        """Call the filter verb. Raises ExtenderError."""
        if not self.is_filter:
            return FilterResult(list(nodes), {}, {})
        answer = await self._send(
            self._config.filter_verb,
            self._args(pod, nodes),
            _FILTER_RESULT,
            {
                "Nodes": None,
                "NodeNames": None,
                "FailedNodes": None,
                "FailedAndUnresolvableNodes": None,
                "Error": "",
            },
        )
        if answer["Error"]:
            raise ExtenderError(answer["Error"])
        return FilterResult(
            self._filtered(answer, nodes),
            answer["FailedNodes"],
            answer["FailedAndUnresolvableNodes"],
        )

    def _filtered(self, answer: Obj, nodes: Sequence[NodeInfo]) -> list[NodeInfo] | None:
        if self._config.node_cache_capable and answer["NodeNames"] is not None:
            by_name = {node.name: node for node in nodes}
            for name in answer["NodeNames"]:
                if name not in by_name:
                    raise ExtenderError(
                        f'extender "{self.name}" claims a filtered node "{name}" '
                        "which is not found in the input node list"
                    )
            return [by_name[name] for name in answer["NodeNames"]]
        if answer["Nodes"] is not None:
            # As in kube-scheduler, these are the extender's own nodes, which may be unknown and
            # have no pods.
            return [NodeInfo(node_view(item)) for item in answer["Nodes"].get("items") or ()]
        return None

    async def prioritize(
        self, pod: PodInfo, nodes: Sequence[NodeInfo]
    ) -> tuple[list[HostPriority] | None, int]:
        """Call the prioritize verb. Raises ExtenderError."""
        if not self.is_prioritizer:
            return [HostPriority(node.name, 0) for node in nodes], 0
        answer = await self._send(
            self._config.prioritize_verb, self._args(pod, nodes), _HOST_PRIORITY_LIST, None
        )
        if answer is None:
            return None, self._config.weight
        return [HostPriority(item["Host"], item["Score"]) for item in answer], self._config.weight

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Call the bind verb. Raises ExtenderError."""
        if not self.is_binder:
            raise ExtenderError("unexpected empty bindVerb in extender")
        answer = await self._send(
            self._config.bind_verb,
            {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node},
            _BINDING_RESULT,
            {"Error": ""},
        )
        if answer["Error"]:
            raise ExtenderError(answer["Error"])

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], nodes: NodeLister
    ) -> dict[str, Victims]:
        """Call the preempt verb. Raises ExtenderError."""
        if not self.supports_preemption:
            raise ExtenderError(
                f"preempt verb is not defined for extender {self.name} but run into "
                f"ProcessPreemption"
            )
        full = {
            node: {
                "Pods": [_wire_pod(p) for p in entry.pods],
                "NumPDBViolations": entry.pdb_violations,
            }
            for node, entry in victims.items()
        }
        cached = self._config.node_cache_capable
        answer = await self._send(
            self._config.preempt_verb,
            {
                "Pod": _wire_pod(pod),
                "NodeNameToVictims": None if cached else full,
                "NodeNameToMetaVictims": to_meta_victims(victims) if cached else None,
            },
            _PREEMPTION_RESULT,
            {"NodeNameToMetaVictims": None},
        )
        return self.to_victims(answer["NodeNameToMetaVictims"] or {}, nodes)

    def to_victims(self, answer: Mapping[str, Any], nodes: NodeLister) -> dict[str, Victims]:
        """Replace the UIDs of an answer by pods. Raises ExtenderError for an unknown node or pod.

        A null entry would crash kube-scheduler; here it raises ExtenderError.
        """
        found = {}
        for name, entry in answer.items():
            try:
                node = nodes.get(name)
            except VReplicaError as error:
                raise ExtenderError(str(error)) from error
            if entry is None:
                raise ExtenderError(f"extender: {self.name} answers null victims for node: {name}")
            uids = [str(pod["UID"]) if pod is not None else "" for pod in entry.get("Pods") or ()]
            for uid in uids:
                if uid not in node.pods:
                    raise ExtenderError(
                        f"extender: {self.name} claims to preempt pod (UID: &{{{uid}}}) on node: "
                        f"{name}, but the pod is not found on that node"
                    )
            found[name] = Victims(
                tuple(node.pods[uid] for uid in uids), int(entry.get("NumPDBViolations") or 0)
            )
        return found

    def _args(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Obj:
        if self._config.node_cache_capable:
            return {
                "Pod": _wire_pod(pod),
                "Nodes": None,
                "NodeNames": [node.name for node in nodes],
            }
        items = [_wire_node(node) for node in nodes] or None
        return {"Pod": _wire_pod(pod), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _send(self, verb: str, args: Obj, decoder: go_json.Decoder, zero: Any) -> Any:
        url = f"{self.name.rstrip('/')}/{verb}"
        timeout_s = self._config.http_timeout_s or DEFAULT_HTTP_TIMEOUT_S
        try:
            status, body = await self._transport(url, orjson.dumps(args), timeout_s)
        except TransportError as error:
            raise ExtenderError(
                str(error) if error.while_reading else f'Post "{url}": {error}'
            ) from error
        if status != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {status}")
        try:
            return go_json.decode_first(body, decoder, zero)
        except go_json.GoJSONError as error:
            raise ExtenderError(str(error)) from error


def build_extenders(configs: Iterable[ExtenderConfig], transport: Transport) -> list[HTTPExtender]:
    """Return the configured extenders in calling order: ignorable ones last."""
    extenders = [HTTPExtender(config, transport) for config in configs]
    return sorted(extenders, key=lambda extender: extender.is_ignorable)
