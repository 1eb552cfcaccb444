"""The four verbs as kube-scheduler speaks them: request bodies to frozen values, results to
response bodies.

The wire types are those of k8s.io/kube-scheduler/extender/v1: ExtenderArgs (filter and prioritize),
ExtenderBindingArgs, ExtenderPreemptionArgs in; ExtenderFilterResult, HostPriorityList,
ExtenderBindingResult, ExtenderPreemptionResult out. Go matches keys in any letter case, and old
versions sent lower case. So decoders accept any case, and encoders write the capitalised form that
every version reads. A null list is an empty one. Unknown keys are ignored.

With nodeCacheCapable the request has ``NodeNames`` and the answer has names. Otherwise the request
has whole ``Nodes``, and the answer has the request's own node objects. A node in the answer that
was not asked about fails kube-scheduler's whole cycle. So every encoder checks for such nodes and
raises ValueError, since it is our own mistake.

For any bytes, a decoder returns a valid value or raises WireError, whose message names the field
and what was expected there. Decoders check only what is used here: ``model.decode`` checks the
inside of pods and nodes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from extender.model.errors import WireError
from extender.model.names import NAME_CHARS_MAX
from extender.model.reasons import ConflictReasons
from extender.node.candidates import NODES_MAX, PLACEHOLDER, Candidates
from extender.node.wire_values import (
    api_name_at,
    document,
    fields_of,
    kind_of,
    limit,
    list_at,
    object_at,
    string_at,
)

Json = Mapping[str, object]

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one request: 5,000 whole nodes of 12 KiB. A request with NodeNames alone stays below 1
MiB.
"""
VICTIMS_MAX: Final = 1_000
"""Pods to evict on one node, in a preempt request."""
NAMESPACE_CHARS_MAX: Final = 63
UID_CHARS_MAX: Final = 128
SCORE_MAX: Final = 10
"""MaxExtenderPriority."""

_COUNT_MAX: Final = 2**63 - 1
_ALL_PASS: Final = (
    b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
)
_META_VICTIMS: Final = {"Pods", "NumPDBViolations"}
_EXTENDER_ARGS: Final = ("Pod", "Nodes", "NodeNames")


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """ExtenderArgs: the pod and its candidate nodes, as names (nodeCacheCapable) or as whole
    objects.
    """

    pod: Json
    candidates: Candidates
    nodes: tuple[Json, ...] | None = None
    """None if the request has names."""

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates' names, in the order of the request."""
        return self.candidates.names


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """ExtenderBindingArgs: bind the pod with this UID to ``node``."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str


class Victims(NamedTuple):
    """The pods that would be evicted from one node. ``pods``: the whole objects if the request has
    them, else None.
    """

    uids: tuple[str, ...]
    pdb_violations: int = 0
    """Pods among them whose eviction breaks a PodDisruptionBudget."""
    pods: tuple[Json, ...] | None = None


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """ExtenderPreemptionArgs: the pod that needs room, and by node name the pods that
    kube-scheduler would evict for it.
    """

    pod: Json
    victims: Mapping[str, Victims]


# -- requests --------------------------------------------------------------------------------------


def decode_extender_args(
    body: bytes, known: Mapping[str, str] = MappingProxyType({})
) -> FilterArgs:
    """Read a filter or prioritize request. Raises WireError.

    ``known`` maps names of nodes to the strings to use for them. A known name is not checked, and
    not stored twice.
    """
    fields = _document(body, "ExtenderArgs", _EXTENDER_ARGS)
    pod = _pod(fields.get("Pod"), "Pod")
    if "Nodes" not in fields and "NodeNames" not in fields:
        raise WireError("NodeNames: expected NodeNames or Nodes, found neither")
    names, nodes = fields.get("NodeNames"), fields.get("Nodes")
    if names is not None and nodes is not None:
        raise WireError("NodeNames: expected NodeNames or Nodes, found both")
    if nodes is None:
        return FilterArgs(pod, _node_names(names, known))
    found = _nodes(nodes)
    return FilterArgs(pod, _each_once(map(_name_of, found), "Nodes.items"), found)


def decode_cut_args(body: bytes, candidates: Candidates) -> FilterArgs | None:
    """Read a request whose list of names was cut out (``CandidateLists.cut``). Raises WireError.

    None if the text that was cut out is not the list: the request must then be read whole.
    """
    fields = _document(body, "ExtenderArgs", _EXTENDER_ARGS)
    if fields.get("NodeNames") != PLACEHOLDER or fields.get("Nodes") is not None:
        return None
    return FilterArgs(_pod(fields.get("Pod"), "Pod"), candidates)


def decode_binding_args(body: bytes) -> BindingArgs:
    """Read a bind request. Raises WireError, also for names that are not valid: they become part of
    a URL.
    """
    fields = _document(body, "ExtenderBindingArgs", ("PodName", "PodNamespace", "PodUID", "Node"))
    return BindingArgs(
        pod_name=api_name_at(fields.get("PodName"), "PodName", NAME_CHARS_MAX),
        pod_namespace=api_name_at(fields.get("PodNamespace"), "PodNamespace", NAMESPACE_CHARS_MAX),
        pod_uid=string_at(fields.get("PodUID"), "PodUID", UID_CHARS_MAX),
        node=api_name_at(fields.get("Node"), "Node", NAME_CHARS_MAX),
    )


def decode_preemption_args(body: bytes) -> PreemptionArgs:
    """Read a preempt request, with whole victims (NodeNameToVictims) or with UIDs
    (NodeNameToMetaVictims).

    Raises WireError.
    """
    keys = ("Pod", "NodeNameToVictims", "NodeNameToMetaVictims")
    fields = _document(body, "ExtenderPreemptionArgs", keys)
    pod = _pod(fields.get("Pod"), "Pod")
    if all(fields.get(key) is not None for key in keys[1:]):
        raise WireError("NodeNameToVictims: expected it or NodeNameToMetaVictims, found both")
    whole = fields.get("NodeNameToVictims") is not None
    key = keys[1] if whole else keys[2]
    by_node = object_at({} if fields.get(key) is None else fields[key], key)
    limit(len(by_node), NODES_MAX, key, "nodes")
    victims: dict[str, Victims] = {}
    for name, value in by_node.items():
        plain = _plain_victims(value) if not whole and 0 < len(name) <= NAME_CHARS_MAX else None
        if plain is None:
            string_at(name, f"{key}: node name", NAME_CHARS_MAX)
            plain = _victims(value, f"{key}[{name:.60}]", whole=whole)
        victims[name] = plain
    return PreemptionArgs(pod, victims)


# -- results ---------------------------------------------------------------------------------------


def encode_filter_result(
    args: FilterArgs,
    passed: Candidates,
    failed: Mapping[str, ConflictReasons],
    unresolvable: Mapping[str, ConflictReasons],
) -> bytes:
    """Return ExtenderFilterResult in the request's own form. ``failed``, ``unresolvable``: node
    name -> reasons, which kube-scheduler gets as one text.

    Nodes in ``unresolvable`` are no candidates for preemption. Raises ValueError for a node that
    was not asked about, or that is both passed and refused. Raises WireError if a node of the
    request is nested too deeply to be sent back.
    """
    if passed is not args.candidates or failed or unresolvable:
        # A set is compared faster than a sequence: it stores its names' hashes.
        through = passed.asked
        _check_asked(args.candidates.asked, through, failed, unresolvable)
        if not failed.keys().isdisjoint(through) or not unresolvable.keys().isdisjoint(through):
            raise ValueError("a node is passed and refused at once")
    elif args.nodes is None and args.candidates.text:
        # All pass: send the request's list back unchanged.
        return _ALL_PASS % args.candidates.text
    names: object
    if args.nodes is None:
        nodes, names = None, orjson.Fragment(passed.text) if passed.text else passed.names
    else:
        nodes = {"metadata": {}, "items": [node for node in args.nodes if _name_of(node) in passed]}
        names = None
    result = {
        "Nodes": nodes,
        "NodeNames": names,
        "FailedNodes": _texts(failed),
        "FailedAndUnresolvableNodes": _texts(unresolvable),
        "Error": "",
    }
    try:
        return orjson.dumps(result, default=dict)
    except orjson.JSONEncodeError as problem:
        raise WireError(f"Nodes.items: cannot be sent back: {problem}") from problem


def _texts(refused: Mapping[str, ConflictReasons]) -> dict[str, str]:
    return {name: ", ".join(reasons) for name, reasons in refused.items()}


def encode_host_priorities(args: FilterArgs, scores: Mapping[str, int]) -> bytes:
    """HostPriorityList; ``scores``: node name -> 0 to SCORE_MAX. Raises ValueError."""
    _check_asked(args.candidates.asked, scores)
    if scores and not 0 <= min(scores.values()) <= max(scores.values()) <= SCORE_MAX:
        raise ValueError(f"scores must be from 0 to {SCORE_MAX}")
    return orjson.dumps([{"Host": name, "Score": score} for name, score in scores.items()])


def encode_binding_result(error: str = "") -> bytes:
    """ExtenderBindingResult; "" means bound."""
    return orjson.dumps({"Error": error})


def encode_preemption_result(args: PreemptionArgs, chosen: Mapping[str, Victims]) -> bytes:
    """Return ExtenderPreemptionResult, always as NodeNameToMetaVictims, the only form that
    kube-scheduler reads.

    Raises ValueError for a node or victim that was not asked about, and for a node without victims,
    which kube-scheduler takes for an error of ours.
    """
    _check_asked(frozenset(args.victims), chosen)
    for name, victims in chosen.items():
        proposed = args.victims[name]
        some = victims is proposed or set(victims.uids) <= set(proposed.uids)
        if not victims.uids or not some:
            raise ValueError(f"victims on {name} must be some of those in the request")
    by_node = {
        name: {
            "Pods": [{"UID": uid} for uid in victims.uids],
            "NumPDBViolations": victims.pdb_violations,
        }
        for name, victims in chosen.items()
    }
    return orjson.dumps({"NodeNameToMetaVictims": by_node})


def _check_asked(asked: frozenset[str], *answers: Collection[str]) -> None:
    for answer in answers:
        if not asked.issuperset(answer):
            strangers = sorted(set(answer) - asked)
            raise ValueError(f"answer names nodes that were not asked about: {strangers[:3]}")


# -- the parts of a request ------------------------------------------------------------------------


def _document(body: bytes, what: str, keys: tuple[str, ...]) -> dict[str, object]:
    limit(len(body), BODY_BYTES_MAX, "body", "bytes")
    return document(body, what, keys)


def _pod(value: object, where: str) -> Json:
    pod = object_at(value, where)
    metadata = object_at(pod.get("metadata"), f"{where}.metadata")
    string_at(metadata.get("name"), f"{where}.metadata.name", NAME_CHARS_MAX)
    string_at(metadata.get("namespace"), f"{where}.metadata.namespace", NAMESPACE_CHARS_MAX)
    string_at(metadata.get("uid"), f"{where}.metadata.uid", UID_CHARS_MAX)
    return pod


def _node_names(value: object, known: Mapping[str, str]) -> Candidates:
    """Read the one list that is long on every call: all names at once, and one by one only if an
    unknown or repeated name is found.
    """
    found = list_at(value, "NodeNames")
    limit(len(found), NODES_MAX, "NodeNames", "nodes")
    try:
        names = tuple(map(known.get, found))  # type: ignore[arg-type]  # what is no string is not found
    except TypeError:  # an unhashable entry
        names = (None,)
    asked = frozenset(names)
    if None not in asked and len(asked) == len(names):
        return Candidates(names, asked, known=True)  # type: ignore[arg-type]  # mypy does not see that there is no None
    checked = (
        string_at(name, f"NodeNames[{index}]", NAME_CHARS_MAX) for index, name in enumerate(found)
    )
    return _each_once(checked, "NodeNames")


def _nodes(value: object) -> tuple[Json, ...]:
    items = list_at(
        fields_of(object_at(value, "Nodes"), ("items",), "Nodes").get("items"), "Nodes.items"
    )
    limit(len(items), NODES_MAX, "Nodes.items", "nodes")
    nodes: list[Json] = []
    for index, item in enumerate(items):
        where = f"Nodes.items[{index}]"
        node = object_at(item, where)
        metadata = object_at(node.get("metadata"), f"{where}.metadata")
        string_at(metadata.get("name"), f"{where}.metadata.name", NAME_CHARS_MAX)
        nodes.append(node)
    return tuple(nodes)


def _victims(value: object, where: str, *, whole: bool) -> Victims:
    fields = fields_of(object_at(value, where), ("Pods", "NumPDBViolations"), where)
    items = list_at(fields.get("Pods"), f"{where}.Pods")
    limit(len(items), VICTIMS_MAX, f"{where}.Pods", "pods")
    violations = fields.get("NumPDBViolations", 0)
    if type(violations) is not int or not 0 <= violations <= _COUNT_MAX:
        raise WireError(f"{where}.NumPDBViolations: expected a count, found {kind_of(violations)}")
    if not whole:
        return Victims(
            tuple(_victim_uid(item, f"{where}.Pods[{index}]") for index, item in enumerate(items)),
            violations,
        )
    pods = tuple(_pod(item, f"{where}.Pods[{index}]") for index, item in enumerate(items))
    return Victims(tuple(str(_metadata(pod)["uid"]) for pod in pods), violations, pods)


def _plain_victims(value: object) -> Victims | None:
    """Read MetaVictims as Go writes them, of which there may be thousands. None for any other form,
    which needs the full checks.
    """
    if type(value) is not dict or value.keys() != _META_VICTIMS:
        return None
    pods, violations = value["Pods"], value["NumPDBViolations"]
    if type(pods) is not list or type(violations) is not int or not 0 <= violations <= _COUNT_MAX:
        return None
    if len(pods) > VICTIMS_MAX:
        return None
    uids: list[str] = []
    for pod in pods:
        uid = pod.get("UID") if type(pod) is dict and len(pod) == 1 else None
        if type(uid) is not str or not 0 < len(uid) <= UID_CHARS_MAX:
            return None
        uids.append(uid)
    return Victims(tuple(uids), violations)


def _victim_uid(item: object, where: str) -> str:
    return string_at(
        fields_of(object_at(item, where), ("UID",), where).get("UID"), f"{where}.UID", UID_CHARS_MAX
    )


def _metadata(obj: Json) -> Json:
    """The metadata of a pod or node that has been checked to have it."""
    metadata = obj["metadata"]
    return metadata if isinstance(metadata, dict) else {}


def _name_of(node: Json) -> str:
    return str(_metadata(node)["name"])


def _each_once(names: Iterable[str], where: str) -> Candidates:
    candidates = Candidates.of(names)
    if len(candidates.asked) != len(candidates.names):
        raise WireError(f"{where}: expected every node once, found one twice")
    return candidates
