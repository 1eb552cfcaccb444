"""Lists of candidates that are known by their text: never another list than the parser would have read."""

import orjson
import pytest

from extender.core import candidates
from extender.core.candidates import CandidateLists, Candidates
from extender.core.errors import WireError
from extender.core.wire import FilterArgs, decode_cut_args, decode_extender_args

KNOWN = {f"node-{index}": f"node-{index}" for index in range(4)}
POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}


def request(names: object, pod: object = POD, **others: object) -> bytes:
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names, **others})


def read(lists: CandidateLists, body: bytes, revision: int = 1) -> tuple[FilterArgs, bool]:
    """As the verbs read it, and whether its list was known."""
    cut = lists.cut(body, revision)
    if cut is not None and (args := decode_cut_args(*cut)) is not None:
        return args, True
    args = decode_extender_args(body, KNOWN)
    lists.keep(body, args.candidates)
    return args, False


def was_known(lists: CandidateLists, body: bytes, revision: int = 1) -> bool:
    args, known = read(lists, body, revision)
    plain = decode_extender_args(body, KNOWN)
    assert (args.pod, args.names, args.candidates.asked) == (plain.pod, plain.names, plain.candidates.asked)
    return known


def test_a_list_is_known_from_the_third_time_on():
    lists, body = CandidateLists(), request(["node-1", "node-0"])
    assert [was_known(lists, body) for _ in range(4)] == [False, False, True, True]
    assert was_known(lists, request(["node-1", "node-0"], {**POD, "spec": {"x": "NodeNames"}}))
    assert not was_known(lists, request(["node-0", "node-1"])), "another order is another list"


def test_no_list_is_known_any_more_once_nodes_have_changed():
    lists, body = CandidateLists(), request(["node-0"])
    assert [was_known(lists, body) for _ in range(3)] == [False, False, True]
    assert not was_known(lists, body, revision=2)


@pytest.mark.parametrize("names", [["node-0", "elsewhere"], [], None], ids=["one unknown", "empty", "null"])
def test_what_is_not_all_nodes_is_read_each_time(names):
    lists, body = CandidateLists(), request(names)
    assert not any(was_known(lists, body) for _ in range(4)) or names == []


def test_a_list_within_the_pod_is_not_taken_for_the_list():
    lists, body = CandidateLists(), request(["node-0", "node-1"])
    for _ in range(3):
        was_known(lists, body)
    within = {**POD, "spec": {"NodeNames": ["node-0", "node-1"]}}
    assert not was_known(lists, request(["node-3"], within)), "there are two"
    only = orjson.dumps({"Pod": within, "nodenames": ["node-2"]})
    assert [was_known(lists, only) for _ in range(4)] == [False] * 4
    with pytest.raises(WireError, match="found neither"):
        read(lists, orjson.dumps({"Pod": within}))


def test_a_list_in_a_string_is_no_list():
    lists, body = CandidateLists(), request(["node-0", "node-1"])
    for _ in range(3):
        was_known(lists, body)
    quoted = {**POD, "spec": {"x": '"NodeNames":["node-0","node-1"]'}}
    assert not was_known(lists, orjson.dumps({"Pod": quoted, "nodeNames": ["node-2"]}))
    assert was_known(lists, request(["node-0", "node-1"], quoted))


def test_a_mark_that_was_sent_is_no_name():
    lists = CandidateLists()
    with pytest.raises(WireError, match="expected a list"):
        read(lists, request(candidates.MARK))


def test_a_body_that_is_no_json_behind_its_list_is_refused_all_the_same():
    lists, body = CandidateLists(), request(["node-0"])
    for _ in range(3):
        was_known(lists, body)
    with pytest.raises(WireError, match="expected the JSON"):
        read(lists, body[:-1])


def test_the_oldest_list_goes_first_and_a_long_one_is_not_kept(monkeypatch):
    lists = CandidateLists()
    bodies = [request([f"node-{index}"]) for index in range(4)]
    monkeypatch.setattr(candidates, "LISTS_MAX", 2)
    for body in bodies[:3]:
        for _ in range(2):
            read(lists, body)
    assert [lists.cut(body, 1) is not None for body in bodies[:3]] == [False, True, True]
    monkeypatch.setattr(candidates, "LIST_BYTES_MAX", 5)
    assert not any(was_known(lists, bodies[3]) for _ in range(3))


def test_what_is_derived_from_a_list_is_derived_once():
    found = Candidates.of(["node-0", "node-2"])
    zones = {"a": {"node-0", "node-1"}, "b": {"node-2"}}
    assert found.count_in(zones) == {"a": 1, "b": 1}
    assert found.count_in(zones) is found.count_in(zones)
    assert found.position() == {"node-0": 0, "node-2": 1}
