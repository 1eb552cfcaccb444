"""The codec of the four verbs: any letter case in, capitalised out, and nothing but WireError for
anything else.
"""

import contextlib
import random
from typing import Any

import orjson
import pytest
from hypothesis import example, given, strategies as st

from extender.model.errors import WireError
from extender.model.reasons import ConflictReason, ConflictReasons
from extender.node import wire
from extender.node.candidates import Candidates

POD: dict[str, Any] = {"metadata": {"name": "a-0", "namespace": "ns", "uid": "u-1"}, "spec": {}}
NONE = Candidates.none()
FULL, SKEWED = ConflictReason.NODE_SLOTS_EXCEEDED, ConflictReason.ZONE_SKEW_EXCEEDED
Refused = dict[str, ConflictReasons]
DECODERS = (wire.decode_extender_args, wire.decode_binding_args, wire.decode_preemption_args)


def body(**fields: object) -> bytes:
    return orjson.dumps(fields)


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"zone": "z"}},
        "status": {"capacity": {"cpu": "2"}},
    }


def named(*names: str) -> wire.FilterArgs:
    return wire.decode_extender_args(body(Pod=POD, Nodes=None, NodeNames=names))


def whole(*names: str) -> wire.FilterArgs:
    return wire.decode_extender_args(
        body(Pod=POD, Nodes={"items": [node(n) for n in names]}, NodeNames=None)
    )


def preempting(**uids_by_node: list[str]) -> wire.PreemptionArgs:
    victims = {
        name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in uids_by_node.items()
    }
    return wire.decode_preemption_args(body(Pod=POD, NodeNameToMetaVictims=victims))


# -- what is refused, and how it is told -----------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        pytest.param(b"", "body: expected the JSON of ExtenderArgs", id="empty"),
        pytest.param(b"null", "body: expected an object (ExtenderArgs), found nothing", id="null"),
        pytest.param(b"[]", "found a list", id="list"),
        pytest.param(b'{"Pod": NaN}', "expected the JSON", id="NaN"),
        pytest.param(b'{"Pod": 1e999}', "expected the JSON", id="infinite number"),
        pytest.param(b'{"Pod": ' + b"9" * 5000 + b"}", "expected the JSON", id="huge integer"),
        pytest.param(b'{"Pod": "\\ud800"}', "expected the JSON", id="lone surrogate"),
        pytest.param(b'{"Pod": "\xff"}', "expected the JSON", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "expected the JSON", id="deep nesting"),
        pytest.param(b'{"Pod":{},"Pod":{}}', "Pod: expected once, found twice", id="doubled key"),
        pytest.param(
            b'{"Pod":{},"Po\\u0064":{}}', "Pod: expected once", id="doubled key behind an escape"
        ),
        pytest.param(
            b'{"Pod":{},"pod":{}}', "twice in different letter case", id="doubled in another case"
        ),
        pytest.param(body(), "Pod: expected an object, found nothing", id="no pod"),
        pytest.param(body(Pod=[]), "Pod: expected an object, found a list", id="pod is a list"),
        pytest.param(body(Pod={}), "Pod.metadata: expected an object", id="pod without metadata"),
        pytest.param(
            body(Pod={"metadata": {"name": "a", "namespace": "n"}}),
            "Pod.metadata.uid",
            id="pod without UID",
        ),
        pytest.param(
            body(Pod=POD), "NodeNames: expected NodeNames or Nodes, found neither", id="no nodes"
        ),
        pytest.param(body(Pod=POD, NodeNames=["a"], Nodes={}), "found both", id="both forms"),
        pytest.param(
            body(Pod=POD, NodeNames="a"), "NodeNames: expected a list, found a string", id="text"
        ),
        pytest.param(
            body(Pod=POD, NodeNames=["a", 5]),
            "NodeNames[1]: expected a non-empty string",
            id="number",
        ),
        pytest.param(body(Pod=POD, NodeNames=[""]), "NodeNames[0]", id="empty name"),
        pytest.param(
            body(Pod=POD, NodeNames=["x" * 254]), "at most 253 characters", id="long name"
        ),
        pytest.param(body(Pod=POD, NodeNames=["a", "a"]), "every node once", id="node twice"),
        pytest.param(
            body(Pod=POD, Nodes=[]), "Nodes: expected an object, found a list", id="Nodes is a list"
        ),
        pytest.param(
            body(Pod=POD, Nodes={"items": [5]}), "Nodes.items[0]: expected an object", id="node 5"
        ),
        pytest.param(
            body(Pod=POD, Nodes={"items": [{"metadata": {}}]}),
            "Nodes.items[0].metadata.name",
            id="nameless",
        ),
        pytest.param(
            body(Pod=POD, Nodes={"items": [node("a"), node("a")]}),
            "every node once",
            id="whole node twice",
        ),
    ],
)
def test_a_bad_filter_request_is_refused_with_the_field_and_what_was_expected(
    raw: bytes, told: str
) -> None:
    with pytest.raises(WireError) as refused:
        wire.decode_extender_args(raw)
    assert told in str(refused.value)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"PodName": "../x"}, "PodName: expected a Kubernetes name", id="path"),
        pytest.param({"PodName": "a\n"}, "PodName", id="line break"),
        pytest.param(
            {"PodNamespace": "x" * 64}, "PodNamespace: expected at most 63", id="long namespace"
        ),
        pytest.param({"PodUID": ""}, "PodUID: expected a non-empty string", id="no UID"),
        pytest.param(
            {"Node": None}, "Node: expected a non-empty string, found nothing", id="no node"
        ),
        pytest.param(
            {"Node": True}, "Node: expected a non-empty string, found a boolean", id="boolean"
        ),
    ],
)
def test_a_bad_bind_request_is_refused(fields: dict[str, object], told: str) -> None:
    good = {"PodName": "a-0", "PodNamespace": "ns", "PodUID": "u", "Node": "n.example"}
    assert wire.decode_binding_args(body(**good)).node == "n.example"
    with pytest.raises(WireError, match=told):
        wire.decode_binding_args(body(**{**good, **fields}))


@pytest.mark.parametrize(
    ("victims", "told"),
    [
        pytest.param(None, r"NodeNameToMetaVictims\[n\]: expected an object", id="null entry"),
        pytest.param({"Pods": [None]}, r"Pods\[0\]: expected an object", id="null victim"),
        pytest.param(
            {"Pods": [{}]}, r"Pods\[0\].UID: expected a non-empty string", id="victim without UID"
        ),
        pytest.param({"NumPDBViolations": -1}, "NumPDBViolations: expected a count", id="negative"),
        pytest.param({"NumPDBViolations": 2**70}, "NumPDBViolations: expected a count", id="huge"),
        pytest.param({"NumPDBViolations": True}, "expected a count, found a boolean", id="boolean"),
    ],
)
def test_a_bad_preempt_request_is_refused(victims: object, told: str) -> None:
    raw = orjson.dumps({"Pod": POD}) if victims == {"NumPDBViolations": 2**70} else None
    if raw is not None:
        raw = raw[:-1] + b',"NodeNameToMetaVictims":{"n":{"NumPDBViolations":%d}}}' % 2**70
    with pytest.raises(WireError, match=told):
        wire.decode_preemption_args(raw or body(Pod=POD, NodeNameToMetaVictims={"n": victims}))


@pytest.mark.parametrize("decode", DECODERS)
def test_an_oversized_body_is_refused_unread(decode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "BODY_BYTES_MAX", 10)
    with pytest.raises(WireError, match="at most 10 bytes") as refused:
        decode(b"{" * 11)
    assert refused.value.status == 413


def test_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "NODES_MAX", 1)
    for raw in (
        body(Pod=POD, NodeNames=["a", "b"]),
        body(Pod=POD, Nodes={"items": [node("a"), node("b")]}),
    ):
        with pytest.raises(WireError, match="at most 1 nodes, found 2") as refused:
            wire.decode_extender_args(raw)
        assert refused.value.status == 413


# -- what is accepted ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(body(Pod=POD, Nodes=None, NodeNames=None), id="both null"),
        pytest.param(body(Pod=POD, NodeNames=[]), id="no names"),
    ],
)
def test_no_candidates_in_is_an_empty_list_of_names_out(raw: bytes) -> None:
    args = wire.decode_extender_args(raw)
    assert args.names == ()
    assert orjson.loads(wire.encode_filter_result(args, NONE, {}, {}))["NodeNames"] == []


def test_null_items_are_no_nodes() -> None:
    args = wire.decode_extender_args(body(Pod=POD, Nodes={"items": None}))
    assert args.nodes == ()
    assert orjson.loads(wire.encode_filter_result(args, NONE, {}, {}))["Nodes"]["items"] == []


def test_unknown_keys_are_ignored() -> None:
    args = wire.decode_extender_args(body(Pod=POD, NodeNames=["a"], Future={"x": 1}))
    assert args.names == ("a",)


def test_text_that_only_looks_like_a_doubled_key_is_accepted() -> None:
    pod = {**POD, "spec": {"Pod": "Pod", "NodeNames": ["NodeNames"]}}
    assert wire.decode_extender_args(body(Pod=pod, NodeNames=["a"])).pod == pod


# -- what is sent ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [named("a", "b", "c"), whole("a", "b", "c")], ids=["names", "whole nodes"]
)
def test_filter_result_in_the_form_of_the_request(args: wire.FilterArgs) -> None:
    result = orjson.loads(
        wire.encode_filter_result(args, Candidates.of("b"), {"a": (FULL,)}, {"c": (FULL, SKEWED)})
    )
    assert result["FailedNodes"] == {"a": "NodeSlotsExceeded"}
    assert result["FailedAndUnresolvableNodes"] == {"c": "NodeSlotsExceeded, ZoneSkewExceeded"}
    assert result["Error"] == ""
    if args.nodes is None:
        assert (result["NodeNames"], result["Nodes"]) == (["b"], None)
    else:
        assert (result["NodeNames"], result["Nodes"]["items"]) == (None, [node("b")])


def test_an_error_goes_into_the_result() -> None:
    assert orjson.loads(wire.encode_binding_result("PodChanged")) == {"Error": "PodChanged"}


@pytest.mark.parametrize(
    ("passed", "failed", "unresolvable"),
    [
        pytest.param(["x"], {}, {}, id="passed"),
        pytest.param([], {"x": (FULL,)}, {}, id="failed"),
        pytest.param([], {}, {"x": (FULL,)}, id="unresolvable"),
        pytest.param(["a"], {"a": (FULL,)}, {}, id="passed and failed"),
        pytest.param(["a"], {}, {"a": (FULL,)}, id="passed and unresolvable"),
    ],
)
@pytest.mark.parametrize("args", [named("a"), whole("a")], ids=["names", "whole nodes"])
def test_a_node_not_asked_about_never_leaves(
    args: wire.FilterArgs, passed: list[str], failed: Refused, unresolvable: Refused
) -> None:
    with pytest.raises(ValueError, match=r"not asked about|at once"):
        wire.encode_filter_result(args, Candidates.of(passed), failed, unresolvable)


def test_scores_are_for_asked_nodes_and_in_range() -> None:
    assert orjson.loads(wire.encode_host_priorities(named("a", "b"), {"a": 10, "b": 0})) == [
        {"Host": "a", "Score": 10},
        {"Host": "b", "Score": 0},
    ]
    for scores in ({"a": 11}, {"a": -1}, {"x": 1}):
        with pytest.raises(ValueError, match=r"score|asked"):
            wire.encode_host_priorities(named("a"), scores)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"x": wire.Victims(("u1",))}, id="strange node"),
        pytest.param({"n": wire.Victims(("u9",))}, id="strange victim"),
        pytest.param({"n": wire.Victims(())}, id="no victims"),
    ],
)
def test_victims_are_some_of_those_offered(chosen: dict[str, wire.Victims]) -> None:
    args = preempting(n=["u1", "u2"])
    fewer = {"n": wire.Victims(("u2",), 1)}
    assert orjson.loads(wire.encode_preemption_result(args, fewer)) == {
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u2"}], "NumPDBViolations": 1}}
    }
    with pytest.raises(ValueError, match=r"asked|victims"):
        wire.encode_preemption_result(args, chosen)


def test_a_node_nested_too_deep_to_send_back_is_the_callers_mistake() -> None:
    deep = b"[" * 500 + b"]" * 500
    raw = b'{"Pod":%b,"Nodes":{"items":[{"metadata":{"name":"a"},"x":%b}]}}' % (
        orjson.dumps(POD),
        deep,
    )
    args = wire.decode_extender_args(raw)
    with pytest.raises(WireError, match="cannot be sent back"):
        wire.encode_filter_result(args, Candidates.of("a"), {}, {})


# -- properties ------------------------------------------------------------------------------------

NAMES = st.text("abcxyz0123456789-.", min_size=1, max_size=20)


def in_any_case(key: str, seed: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice((str.lower, str.upper))(letter) for letter in key)


@given(names=st.lists(NAMES, unique=True, max_size=20), full=st.booleans(), seed=st.integers(0, 99))
def test_filter_round_trip_in_any_letter_case(names: list[str], full: bool, seed: int) -> None:
    nodes = {"items": [node(name) for name in names]} if full else None
    fields = {"Pod": POD, "Nodes": nodes, "NodeNames": None if full else names}
    args = wire.decode_extender_args(
        body(**{in_any_case(key, seed): value for key, value in fields.items()})
    )
    assert (args.pod, args.names) == (POD, tuple(names))
    result = orjson.loads(wire.encode_filter_result(args, Candidates.of(names), {}, {}))
    assert (result["Nodes"]["items"] if full else result["NodeNames"]) == (
        nodes["items"] if nodes else names
    )


@given(
    victims=st.dictionaries(
        NAMES, st.lists(NAMES, min_size=1, max_size=4, unique=True), max_size=5
    ),
    violations=st.integers(0, 2**31),
    full=st.booleans(),
    seed=st.integers(0, 99),
)
def test_preempt_round_trip_in_any_letter_case(
    victims: dict[str, list[str]], violations: int, full: bool, seed: int
) -> None:
    def victim(uid: str) -> dict[str, Any]:
        whole_pod = {"metadata": {"name": "v", "namespace": "ns", "uid": uid}}
        return whole_pod if full else {in_any_case("UID", seed): uid}

    by_node = {
        name: {
            in_any_case("Pods", seed): [victim(uid) for uid in uids],
            in_any_case("NumPDBViolations", seed): violations,
        }
        for name, uids in victims.items()
    }
    key = "NodeNameToVictims" if full else "NodeNameToMetaVictims"
    args = wire.decode_preemption_args(body(**{"pod": POD, in_any_case(key, seed): by_node}))
    assert {name: list(item.uids) for name, item in args.victims.items()} == victims
    sent = orjson.loads(wire.encode_preemption_result(args, args.victims))["NodeNameToMetaVictims"]
    assert {name: [pod["UID"] for pod in item["Pods"]] for name, item in sent.items()} == victims
    assert all(item["NumPDBViolations"] == violations for item in sent.values())


@pytest.mark.parametrize("decode", DECODERS)
@given(raw=st.binary(max_size=200))
@example(raw=b'{"Pod":{"metadata":{"name":"a","namespace":"b","uid":"c"}},"NodeNames":[[]]}')
def test_no_bytes_raise_anything_but_wire_error(decode: Any, raw: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(raw)


KNOWN_KEYS = (
    *(
        "Pod",
        "pod",
        "Nodes",
        "NodeNames",
        "NodeNameToVictims",
        "nodenametometavictims",
        "metadata",
        "name",
    ),
    *(
        "namespace",
        "uid",
        "UID",
        "items",
        "Pods",
        "NumPDBViolations",
        "PodName",
        "PodUID",
        "Node",
        "n1",
    ),
)
KEYS = st.sampled_from(KNOWN_KEYS)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text("ab-. é\u2028", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.parametrize("decode", DECODERS)
@given(fields=st.dictionaries(KEYS, VALUES | st.just(POD), max_size=5))
def test_no_json_of_known_keys_raises_anything_but_wire_error(
    decode: Any, fields: dict[str, object]
) -> None:
    with contextlib.suppress(WireError):
        decode(orjson.dumps(fields))


@pytest.mark.parametrize(
    "victims",
    [
        {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1},
        {"Pods": [], "NumPDBViolations": 0},
        {"pods": [{"uid": "a"}], "NumPDBViolations": 0},
        {"Pods": [{"UID": "a", "more": 1}], "NumPDBViolations": 0},
        {"Pods": [{"UID": ""}], "NumPDBViolations": 0},
        {"Pods": [{"UID": "x" * 129}], "NumPDBViolations": 0},
        {"Pods": [{"UID": 1}], "NumPDBViolations": 0},
        {"Pods": [{"UID": "a"}], "NumPDBViolations": True},
        {"Pods": [{"UID": "a"}], "NumPDBViolations": -1},
        {"Pods": None, "NumPDBViolations": 0},
        {"Pods": [1], "NumPDBViolations": 0},
        {"Pods": [{"UID": str(n)} for n in range(1001)], "NumPDBViolations": 0},
        [],
    ],
    ids=lambda victims: str(victims)[:50],
)
def test_victims_as_go_writes_them_are_read_as_any_others(victims, monkeypatch):
    body = orjson.dumps({"Pod": POD, "NodeNameToMetaVictims": {"n": victims}})

    def read() -> object:
        try:
            return wire.decode_preemption_args(body)
        except WireError as error:
            return str(error)

    quick = read()
    monkeypatch.setattr(wire, "_plain_victims", lambda _value: None)
    assert read() == quick
