"""Lists of node names differ from request to request as kube-scheduler's do, and every peer is sent
the same ones.
"""

import orjson
import pytest

from tests.bench import verb_cases
from tests.bench.lists import KINDS, OTHER, REORDERED, SAME, NodeLists
from tests.bench.population import Pool
from tests.bench.requests import FILTER, PRIORITIZE

NAMES = [f"node-{number}" for number in range(40)]


def test_the_same_list_comes_every_time():
    lists = NodeLists(NAMES, 30, SAME, seed=1)
    assert lists.of(0) == lists.of(7) == NAMES[:30]


def test_a_reordered_list_has_the_same_nodes_in_an_order_of_its_own_every_time():
    lists = NodeLists(NAMES, 30, REORDERED, seed=1)
    found = [lists.of(number) for number in range(20)]
    assert {frozenset(names) for names in found} == {frozenset(NAMES[:30])}
    assert len({tuple(names) for names in found}) == 20


def test_another_list_has_as_many_other_nodes_every_time():
    lists = NodeLists(NAMES, 30, OTHER, seed=1)
    found = [frozenset(lists.of(number)) for number in range(20)]
    assert {len(names) for names in found} == {30}
    assert len(set(found)) == 20


def test_a_request_has_one_list_whoever_asks_for_it():
    for kind in KINDS:
        one, again = (NodeLists(NAMES, 30, kind, seed=1) for _ in range(2))
        assert [one.of(number) for number in range(20)] == [
            again.of(number) for number in range(20)
        ]


def test_all_the_nodes_that_there_are_have_no_other_list():
    with pytest.raises(ValueError, match="40 of 40"):
        NodeLists(NAMES, 40, OTHER, seed=1)


@pytest.mark.parametrize("scale", [verb_cases.SHORT, verb_cases.FULL], ids=["short", "full"])
def test_each_size_is_measured_with_each_kind_of_list_by_verb_and_as_kube_scheduler_asks(scale):
    rows = list(
        verb_cases.cases(scale, Pool("a", 2, 3, 1), Pool("b", 1, 2, 1, profile="ha"), seed=1)
    )
    wanted = {(verb, kind) for verb in (FILTER, PRIORITIZE, verb_cases.PAIR) for kind in KINDS}
    for profile, sizes in (("default", scale.names), ("ha", scale.names[-1:])):
        for nodes in sizes:
            found = {
                (row.verb, row.kind)
                for row in rows
                if (row.form, row.nodes, row.profile, row.refused) == ("names", nodes, profile, 0)
                and row.verb != verb_cases.CYCLE
            }
            assert found == wanted
    described = [tuple(row.described().items()) for row in rows]
    assert len(set(described)) == len(described), "no two rows have one name"


def test_a_request_of_a_row_has_as_many_names_as_the_row_says():
    rows = verb_cases.cases(
        verb_cases.SHORT, Pool("a", 2, 50, 1), Pool("b", 1, 2, 1, profile="ha"), seed=1
    )
    for row in rows:
        if row.form == "names":
            assert len(orjson.loads(row.body(3))["NodeNames"]) == row.nodes == row.entries


def test_the_whole_cycle_is_measured_once_and_asks_about_each_pod_once():
    rows = list(verb_cases.cases(verb_cases.SHORT, Pool("a", 2, 50, 1), Pool("b", 1, 2, 1), seed=1))
    (row,) = [row for row in rows if row.verb == verb_cases.CYCLE]
    assert (row.nodes, row.kind) == (verb_cases.SHORT.names[-1], REORDERED)
    asked = [
        orjson.loads(row.body(number))["Pod"]["metadata"]["name"]
        for number in range(row.requests_max or 0)
    ]
    assert len(set(asked)) == len(asked) == 49 // 3
