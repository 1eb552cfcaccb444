"""Breaks of indexes: which pod has which, and whose epoch is greater."""

from tests.mutants.mutant import Mutant

_RULES = "extender/engine/placing/indexes.py"
_HOLDERS = "extender/engine/placing/holders.py"
_SHARES = "extender/service/placing/indexed.py"
_EXCLUSIVE = "extender/service/placing/exclusive.py"
_TEST = "tests/engine/placing/test_indexes.py::"
_SETS = f"{_TEST}test_whatever_was_told_the_sets_are_disjoint_and_complete"
_POOL = "tests/service/placing/test_indexed.py::"

INDEXED = (
    Mutant(
        "an index that two pods are told stays with both",
        _RULES,
        "taken | others) & ~taken",
        "taken | others)",
        "two pods have the same index for ever",
        (_SETS,),
    ),
    Mutant(
        "a pod gives up its highest indexes, whoever has them already",
        _RULES,
        "gone = highest(indexes & others, excess)",
        "gone = 0",
        "indexes move although nothing asks for it",
        (f"{_TEST}test_the_indexes_of_a_vpod",),
    ),
    Mutant(
        "the indexes are as many as the vpod asks for",
        _RULES,
        "limit = up_to(max(total, min(of, last)))",
        "limit = up_to(max(total, of))",
        "a vpod that asks for two billion takes all memory",
        (f"{_TEST}test_a_vpod_that_asks_for_two_billion_costs_no_memory",),
    ),
    Mutant(
        "a pod is told its next indexes before its ledger has lost the others",
        _RULES,
        "return at_rest | lowest(leaving, count - at_rest.bit_count())",
        "return at_rest",
        "I7: nobody serves them until the next one does",
        (f"{_TEST}test_what_a_pod_is_told",),
    ),
    Mutant(
        "a pod that serves other indexes holds those that it had no more",
        _HOLDERS,
        "before.indexes | told.indexes",
        "told.indexes",
        "I6: its adapter has not heard of it",
        (
            "tests/engine/placing/test_holders.py::"
            "test_an_index_that_a_pod_may_serve_is_not_free_for_others",
        ),
    ),
    Mutant(
        "as many vreplicas are the same vreplicas",
        _HOLDERS,
        "or than.indexes & ~held.indexes != 0",
        "",
        "liveness: who waits for an index is not told that it is free",
        (
            "tests/engine/placing/test_holders.py::"
            "test_others_are_told_when_a_pod_has_other_indexes_although_as_many",
        ),
    ),
    Mutant(
        "an index that others may serve is free",
        _EXCLUSIVE,
        "free = told.indexes & ~holders.others_indexes(vpod, pod.uid)",
        "free = told.indexes",
        "I6: it is served twice",
        (
            f"{_POOL}test_no_index_is_served_twice_while_a_part_of_a_share_moves",
            f"{_POOL}test_a_vpod_that_shrinks_below_the_indexes_of_a_pod_serves_none_twice",
            "simulate --seed 201 --seeds 12 --events 60 --profile tests/simulation/indexed.yaml",
        ),
    ),
    Mutant(
        "what a lost pod had is not remembered",
        _SHARES,
        "self._gone.setdefault(pod.pool, {})[pod.name] = {",
        'self._gone.setdefault(pod.pool, {})[""] = {',
        "ordinals that come back get each other's indexes",
        (f"{_POOL}test_lost_ordinals_come_back_with_their_indexes",),
    ),
    Mutant(
        "an index that comes back keeps its old epoch",
        _SHARES,
        "epoch_over=max(epochs, default=0)",
        "epoch_over=min(0, *epochs, 0)",
        "outside systems refuse the pod: they have seen the other one's epoch",
        (f"{_POOL}test_an_index_that_comes_back_before_it_has_left_has_a_greater_epoch",),
    ),
    Mutant(
        "an index that is new on a pod does not raise its epoch",
        "extender/model/assignment.py",
        "or told.indexes & ~indexes_from(current.indexes) != 0",
        "",
        "fencing: another pod had it with a greater epoch",
        (
            "tests/model/test_assignment.py::TestNextAssignment::"
            "test_its_epoch_grows_with_each_index_that_may_have_been_another_pods",
        ),
    ),
    Mutant(
        "of two pods with the same index the one with the lower ordinal keeps it",
        _SHARES,
        "told[name].epoch, placement_order(name)",
        "placement_order(name)",
        "I7: the pod that serves it is told of another one, and nobody serves it for a moment",
        (
            f"{_POOL}test_an_index_of_a_move_that_is_not_needed_any_more_stays_with_the_pod_that_"
            "had_it",
        ),
    ),
    Mutant(
        "pods are not told anew when another one gets an index that they have",
        _SHARES,
        "if any(one.indexes & indexes for one in others):",
        "if False:",
        "fencing: the epoch of an index that comes back is not renewed",
        (f"{_POOL}test_the_pods_of_a_vpod_are_told_anew_when_one_is_told_what_another_one_has",),
    ),
)
