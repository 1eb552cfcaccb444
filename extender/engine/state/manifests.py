"""Builds a ``ClusterState`` from manifests, for ``vreplica plan``: the objects of a cluster, read
from files. Pure.

It fills in what files usually leave out. An object without a namespace is in ``default``. A pod
without our label belongs to the pool whose StatefulSet its name comes from, and that StatefulSet
controls it. A node that no file has is healthy. A namespace that no file has has only the label
with its name. Ledgers on pods take slots, exactly as in a cluster. Objects of a kind that a pool
declares as a source are its vpods. If several pools could have an object, the first by key gets it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.cluster_state import ClusterState
from extender.model import decode
from extender.model.decode_tenancy import quota_from
from extender.model.errors import InvalidObject
from extender.model.names import API_VERSION, POOL_LABEL, UNKNOWN_ZONE
from extender.model.objects import (
    AdapterPod,
    AdapterPool,
    Namespace,
    Node,
    StatefulSet,
    VPod,
    object_key,
)
from extender.model.reading import Json, labels_of, mapping, refuse_strange, sequence, text
from extender.model.tenancy import VReplicaQuota
from extender.model.translate import PlacementTranslator

KINDS: Final = {
    "StatefulSet": "apps/v1",
    "Pod": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "AdapterPool": API_VERSION,
    "VReplicaQuota": API_VERSION,
    "VPod": API_VERSION,
}
"""Kinds that are read, with their apiVersion. Others are skipped, unless a pool declares them."""
LIST_DEPTH_MAX: Final = 4


@dataclass(slots=True)
class Manifests:
    """The objects that were read, by kind. ``others``: objects of other kinds, which a pool may
    declare as a source.

    ``lenient``: objects of foreign kinds that cannot be read are reported in ``left_out``, and do
    not raise.
    """

    stateful_sets: list[StatefulSet] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    pools: list[AdapterPool] = field(default_factory=list)
    quotas: list[VReplicaQuota] = field(default_factory=list)
    vpods: list[VPod] = field(default_factory=list)
    others: list[Json] = field(default_factory=list)
    lenient: bool = False
    left_out: list[str] = field(default_factory=list)

    @property
    def skipped(self) -> list[str]:
        """``kind name`` of the objects of other kinds that no pool declares."""
        declared = self._declared_kinds()
        return [
            f"{text(obj, 'kind')} {text(obj, 'metadata', 'name')}"
            for obj in self.others
            if _kind_of(obj) not in declared
        ]

    def _declared(self) -> list[Json]:
        """The objects of foreign kinds that a pool declares."""
        declared = self._declared_kinds()
        return [obj for obj in self.others if _kind_of(obj) in declared]

    def _declared_kinds(self) -> set[tuple[str, str]]:
        return {(source.group, source.kind) for pool in self.pools for source in pool.sources}

    def add(self, document: object, source: str) -> None:
        """Read one document, or all items of a List. Raises InvalidObject, which names ``source``
        or the object.
        """
        for item in _items(document, source, LIST_DEPTH_MAX):
            self._add_object(item, source)

    def _add_object(self, obj: Json, source: str) -> None:
        kind, name = text(obj, "kind"), text(obj, "metadata", "name")
        if KINDS.get(kind) != text(obj, "apiVersion"):
            self.others.append(obj)
            return
        if not name:
            raise InvalidObject(source, "metadata.name", f"is required for a {kind}")
        refuse_strange(obj, source)
        obj = _with_namespace(obj) if kind not in {"Node", "Namespace"} else obj
        match kind:
            case "StatefulSet":
                self.stateful_sets.append(decode.stateful_set_from(obj))
            case "Pod":
                _refuse_annotations_that_are_no_text(obj)
                self.pods.append(obj)
            case "Node":
                self.nodes.append(decode.node_from(obj))
            case "Namespace":
                self.namespaces.append(decode.namespace_from(obj))
            case "AdapterPool":
                self.pools.append(decode.pool_from(obj))
            case "VReplicaQuota":
                self.quotas.append(quota_from(obj))
            case _:
                self.vpods.append(decode.vpod_from(obj))

    def adapter_pods(self) -> Iterator[AdapterPod]:
        """The pods of the pools."""
        owners = {pool.stateful_set_key: pool.key for pool in self.pools}
        for obj in self.pods:
            pod = decode.pod_from(obj)
            by_name = owners.get(object_key(pod.namespace, pod.name.rpartition("-")[0]))
            # Only for a pod from a file. A pod with a UID was stored by an API server: it names its
            # owner, or has none.
            if by_name is not None and not (pod.owner or pod.uid):
                pod = replace(pod, owner=pod.name.rpartition("-")[0])
            if text(obj, "metadata", "labels", POOL_LABEL):
                yield pod
            elif by_name is not None:
                yield replace(pod, pool=by_name)

    def state(self, profiles: Mapping[str, Profile] = BUILT_IN_PROFILES) -> ClusterState:
        """The state that a service would have. Raises InvalidObject if an object is there twice."""
        state = ClusterState(profiles)
        pods = list(self.adapter_pods())
        for kind, objects in (
            ("Node", self.nodes),
            ("Namespace", self.namespaces),
            ("StatefulSet", self.stateful_sets),
            ("AdapterPool", self.pools),
            ("VReplicaQuota", self.quotas),
            ("Pod", pods),
            ("VPod", self.vpods),
        ):
            _refuse_doubles(kind, [obj.key for obj in objects])
        shown = {node.name for node in self.nodes}
        unseen = sorted({pod.node for pod in pods if pod.node} - shown)
        for node in [*self.nodes, *(Node(name=name, zone=UNKNOWN_ZONE) for name in unseen)]:
            state.node_changed(None, node)
        known = {namespace.name for namespace in self.namespaces}
        foreign = {text(_with_namespace(obj), "metadata", "namespace") for obj in self._declared()}
        tenants = sorted(({vpod.namespace for vpod in self.vpods} | foreign) - known)
        implied = [
            Namespace(name=name, labels={"kubernetes.io/metadata.name": name}) for name in tenants
        ]
        for namespace in [*self.namespaces, *implied]:
            state.namespace_changed(None, namespace)
        for stateful_set in self.stateful_sets:
            state.stateful_set_changed(None, stateful_set)
        for pool in self.pools:
            state.adapter_pool_changed(None, pool)
        for quota in self.quotas:
            state.quota_changed(None, quota)
        for pod in pods:
            state.pod_changed(None, pod)
        for vpod in [*self.vpods, *self._foreign_vpods(state)]:
            state.vpod_changed(None, vpod)
        return state

    def _foreign_vpods(self, state: ClusterState) -> Iterator[VPod]:
        """Objects of the kinds that pools declare, each in the first pool that selects it and its
        namespace.
        """
        seen: set[str] = set()
        for pool in sorted(self.pools, key=lambda pool: pool.key):
            for source in pool.sources:
                translator = PlacementTranslator(source)
                for obj in self._declared():
                    labels = labels_of(mapping(obj, "metadata", "labels"))
                    if _kind_of(obj) != (source.group, source.kind) or not source.selector.matches(
                        labels
                    ):
                        continue
                    vpod = self._translated(translator, obj, pool.key)
                    if (
                        vpod is not None
                        and vpod.key not in seen
                        and state.allows(pool, vpod.namespace)
                    ):
                        seen.add(vpod.key)
                        yield vpod

    def _translated(self, translator: PlacementTranslator, obj: Json, pool: str) -> VPod | None:
        try:
            refuse_strange(obj, translator.source.kind)
            return translator.to_vpod(_with_namespace(obj), pool)
        except InvalidObject as error:
            if not self.lenient:
                raise
            self.left_out.append(str(error))
            return None


def _kind_of(obj: Json) -> tuple[str, str]:
    """Group and kind."""
    group, slash, _ = text(obj, "apiVersion").partition("/")
    return (group if slash else "", text(obj, "kind"))


def _items(document: object, source: str, depth: int) -> Iterator[Json]:
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise InvalidObject(
            source, "", f"expected a Kubernetes object, found {type(document).__name__}"
        )
    if text(document, "kind").endswith("List") and isinstance(document.get("items"), list):
        if not depth:
            raise InvalidObject(source, "items", "lists are nested too deep")
        for item in sequence(document, "items"):
            yield from _items(item, source, depth - 1)
        return
    if not text(document, "kind") or not text(document, "apiVersion"):
        raise InvalidObject(
            source, "", "a document without apiVersion and kind is not a Kubernetes object"
        )
    yield document


def _with_namespace(obj: Json) -> Json:
    metadata = mapping(obj, "metadata")
    return {
        **obj,
        "metadata": {**metadata, "namespace": text(metadata, "namespace") or "default"},
    }


def _refuse_annotations_that_are_no_text(pod: Json) -> None:
    """Refuse what the API server would refuse. YAML makes a number of an unquoted 20, and a mapping
    of an unquoted ledger.
    """
    for key, value in mapping(pod, "metadata", "annotations").items():
        if not isinstance(value, str):
            subject = object_key(text(pod, "metadata", "namespace"), text(pod, "metadata", "name"))
            raise InvalidObject(
                f"Pod {subject}", f"metadata.annotations.{key}", "must be a string: quote it"
            )


def _refuse_doubles(kind: str, keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise InvalidObject(f"{kind} {key}", "", "is there twice")
        seen.add(key)
