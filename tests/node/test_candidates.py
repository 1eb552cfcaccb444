"""Lists of candidates that are known by their text: never another list than the parser would have
read.
"""

import orjson
import pytest

from extender.model.errors import WireError
from extender.node import candidates
from extender.node.candidates import CandidateLists, Candidates
from extender.node.wire import FilterArgs, decode_cut_args, decode_extender_args

KNOWN = {f"node-{index}": f"node-{index}" for index in range(4)}
POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}


def request(names: object, pod: object = POD, **others: object) -> bytes:
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names, **others})


def read(lists: CandidateLists, body: bytes, revision: int = 1) -> tuple[FilterArgs, bool]:
    """As the verbs read it, and whether its list was cut out."""
    cut = lists.cut(body, KNOWN, revision)
    if cut is not None and (args := decode_cut_args(*cut)) is not None:
        return args, True
    return decode_extender_args(body, KNOWN), False


def was_cut(lists: CandidateLists, body: bytes, revision: int = 1) -> bool:
    args, cut = read(lists, body, revision)
    plain = decode_extender_args(body, KNOWN)
    assert (args.pod, args.names, args.candidates.asked) == (
        plain.pod,
        plain.names,
        plain.candidates.asked,
    )
    return cut


def test_a_list_of_known_nodes_is_read_by_itself_and_the_same_text_once():
    lists, body = CandidateLists(), request(["node-1", "node-0"])
    (first, _), (again, _) = read(lists, body), read(lists, body)
    assert again.candidates is first.candidates
    other, _ = read(lists, request(["node-1", "node-0"], {**POD, "spec": {"x": "NodeNames"}}))
    assert other.candidates is first.candidates
    assert was_cut(lists, body)


def test_the_same_nodes_in_another_order_share_what_does_not_depend_on_it():
    lists = CandidateLists()
    first, other, third = (
        read(lists, request(names))[0].candidates
        for names in (["node-1", "node-0"], ["node-0", "node-1"], ["node-0"])
    )
    assert (other.names, other.text) == (("node-0", "node-1"), b'["node-0","node-1"]')
    assert other.in_any_order is first.in_any_order is first
    assert third.in_any_order is third
    again = read(lists, request(["node-1", "node-0"]))[0].candidates
    assert again.in_any_order is first, "not of the one that came second"


@pytest.mark.parametrize(
    "names",
    [
        ["node-0", "node-0"],
        ["node-0", "elsewhere"],
        ["node-0", 1],
        ["node-1"],
        ["node-0", "node-1", "node-1"],
    ],
    ids=["one twice", "one unknown", "a number", "fewer", "one more"],
)
def test_a_list_that_is_not_of_the_same_nodes_is_not_taken_for_another_order(names):
    lists = CandidateLists()
    first = read(lists, request(["node-1", "node-0"]))[0].candidates
    cut = lists.cut(request(names), KNOWN, 1)
    assert cut is None or cut[1].in_any_order is not first


def test_what_filter_has_passed_is_known_when_prioritize_asks_about_it_in_whatever_order():
    lists = CandidateLists()
    asked = read(lists, request(["node-2", "node-1", "node-0", "node-3"]))[0].candidates
    passed = asked.without({"node-1"})
    lists.answered(passed)
    assert read(lists, request(["node-2", "node-0", "node-3"]))[0].candidates is passed
    again = read(lists, request(["node-3", "node-2", "node-1", "node-0"]))[0].candidates.without(
        {"node-1"}
    )
    lists.answered(again)
    found = read(lists, request(["node-3", "node-2", "node-0"]))[0].candidates
    assert found.in_any_order is passed
    assert found.names == ("node-3", "node-2", "node-0")
    assert found.asked == passed.asked == {"node-0", "node-2", "node-3"}


def test_no_list_is_known_any_more_once_nodes_have_changed():
    lists, body = CandidateLists(), request(["node-0"])
    first, _ = read(lists, body)
    second, _ = read(lists, body, revision=2)
    assert second.candidates.in_any_order is not first.candidates


@pytest.mark.parametrize(
    "names",
    [["node-0", "elsewhere"], None, ["node-0", "node-0"], ["node-0", {}], ["node-0", 1]],
    ids=["one unknown", "null", "one twice", "no name", "a number"],
)
def test_what_is_not_a_list_of_known_nodes_each_once_is_read_with_the_rest(names):
    lists, body = CandidateLists(), request(names)
    assert lists.cut(body, KNOWN, 1) is None


def test_a_list_within_the_pod_is_not_taken_for_the_list():
    lists, body = CandidateLists(), request(["node-0", "node-1"])
    for _ in range(3):
        was_cut(lists, body)
    within = {**POD, "spec": {"NodeNames": ["node-0", "node-1"]}}
    assert not was_cut(lists, request(["node-3"], within)), "there are two"
    only = orjson.dumps({"Pod": within, "nodenames": ["node-2"]})
    assert not any(was_cut(lists, only) for _ in range(2))
    with pytest.raises(WireError, match="found neither"):
        read(lists, orjson.dumps({"Pod": within}))


def test_a_list_in_a_string_is_no_list():
    lists, body = CandidateLists(), request(["node-0", "node-1"])
    for _ in range(3):
        was_cut(lists, body)
    quoted = {**POD, "spec": {"x": '"NodeNames":["node-0","node-1"]'}}
    assert not was_cut(lists, orjson.dumps({"Pod": quoted, "nodeNames": ["node-2"]}))
    assert was_cut(lists, request(["node-0", "node-1"], quoted))


def test_a_mark_that_was_sent_is_no_name():
    lists = CandidateLists()
    with pytest.raises(WireError, match="expected a list"):
        read(lists, request(candidates.PLACEHOLDER))


def test_a_body_that_is_no_json_behind_its_list_is_refused_all_the_same():
    lists, body = CandidateLists(), request(["node-0"])
    for _ in range(3):
        was_cut(lists, body)
    with pytest.raises(WireError, match="expected the JSON"):
        read(lists, body[:-1])


def test_the_oldest_list_goes_first_and_a_long_one_is_not_kept(monkeypatch):
    lists = CandidateLists()
    bodies = [request([f"node-{index}"]) for index in range(4)]
    monkeypatch.setattr(candidates, "LISTS_MAX", 2)
    first = [read(lists, body)[0].candidates for body in bodies[:3]]
    again = [read(lists, body)[0].candidates for body in reversed(bodies[:3])]
    assert [a is b for a, b in zip(first, reversed(again), strict=True)] == [False, True, True]
    monkeypatch.setattr(candidates, "LIST_BYTES_MAX", 5)
    assert not was_cut(lists, bodies[3])


def test_a_long_body_is_read_whole(monkeypatch):
    lists, body = CandidateLists(), request(["node-0"])
    monkeypatch.setattr(candidates, "CUT_BYTES_MAX", len(body))
    assert was_cut(lists, body)
    monkeypatch.setattr(candidates, "CUT_BYTES_MAX", len(body) - 1)
    assert not was_cut(lists, body)


def test_more_names_than_a_request_may_have_are_left_to_the_parser_to_refuse(monkeypatch):
    monkeypatch.setattr(candidates, "NODES_MAX", 1)
    assert CandidateLists().cut(request(["node-0", "node-1"]), KNOWN, 1) is None


def test_what_is_derived_from_a_list_is_derived_once():
    found = Candidates.of(["node-0", "node-2"])
    assert found.position() == {"node-0": 0, "node-2": 1}
    assert found.position() is found.position()
