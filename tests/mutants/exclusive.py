"""Breaks of exclusive pools: who may serve a vpod, and what renews a lease."""

from tests.mutants.mutant import Mutant

_HOLDERS = "extender/engine/placing/holders.py"
_SHARES = "extender/service/placing/exclusive.py"
_ACKNOWLEDGE = "extender/service/http/adapters/acknowledge.py"
_TEST = "tests/engine/placing/test_holders.py::"
_HELD = f"{_TEST}test_what_a_pod_may_serve_is_not_allowed_to_others"
_LATE = f"{_TEST}test_however_late_adapters_hear_no_more_is_served_than_is_published"
_POOL = "tests/service/placing/test_exclusive.py::"
_LEASES = "tests/service/http/adapters/test_acknowledge.py::"

EXCLUSIVE = (
    Mutant(
        "what is taken away may be served elsewhere at once",
        _HOLDERS,
        "return had._replace(until=until)",
        "return None",
        "I6: the adapter has not heard of it",
        (_LATE, f"{_POOL}test_the_shares_of_a_lost_pod_are_served_elsewhere_a_lease_later"),
    ),
    Mutant(
        "an adapter that was told to let go has let go",
        _HOLDERS,
        "None if adapter.has_done(vpod) else both",
        "None",
        "I6: it still works",
        (_HELD, f"{_POOL}test_a_moved_share_is_prepared_drained_and_only_then_served"),
    ),
    Mutant(
        "an adapter that was told of fewer serves fewer",
        _HOLDERS,
        "told if adapter.has_done(vpod) else both",
        "told",
        "I6: it still serves what it had",
        (_HELD, f"{_POOL}test_of_a_part_that_moves_no_more_is_served_together"),
    ),
    Mutant(
        "a pod that is gone has stopped",
        _HOLDERS,
        "None if stopped else held._replace(until=until)",
        "None",
        "I6: a forced deletion stops no process",
        (f"{_POOL}test_an_ordinal_that_comes_back_serves_once_the_pod_before_it_has_stopped",),
    ),
    Mutant(
        "a lease is as long as the pod was told last",
        _HOLDERS,
        "pod.lease_s = max(pod.lease_s, told.lease_s)",
        "pod.lease_s = told.lease_s",
        "I6: the adapter has not heard of the shorter one",
        (f"{_TEST}test_a_lease_that_was_longer_counts_as_long_as_that",),
    ),
    Mutant(
        "what is being written is not held",
        _HOLDERS,
        "pod.asked[vpod] = asked",
        "pass",
        "I6: a write whose answer is lost arrives",
        (f"{_TEST}test_what_is_being_written_counts_until_the_pods_assignment_is_another_one",),
    ),
    Mutant(
        "a new leader knows of all pods that are gone",
        _SHARES,
        "is_new = self._wait_s(pod.pool) > 0",
        "is_new = False",
        "I6: their adapters may still have a lease",
        (f"{_POOL}test_a_leader_that_is_new_tells_nobody_to_serve_more_for_a_lease",),
    ),
    Mutant(
        "those who waited for a new leader are forgotten",
        _SHARES,
        "vpods.update(self._postponed.pop(pool, ()))",
        "self._postponed.pop(pool, ())",
        "liveness: nobody tells them",
        (f"{_POOL}test_a_leader_that_is_new_tells_nobody_to_serve_more_for_a_lease",),
    ),
    Mutant(
        "a share that the claims do not have yet is served",
        _SHARES,
        "wanted = pod.ledger[vpod].vreplicas if vpod in pod.ledger else 0",
        "wanted = 0",
        "I6 (seed 2000 of pools that move a lot)",
        (f"{_POOL}test_a_share_of_a_ledger_that_is_not_in_the_claims_yet_is_not_served",),
    ),
    Mutant(
        "a replica that is behind renews leases",
        _ACKNOWLEDGE,
        "confirmed or not renews",
        "True",
        "I6: the share is taken away, and another pod serves it",
        (f"{_LEASES}test_what_this_replica_has_not_heard_yet_renews_no_lease",),
    ),
    Mutant(
        "a pod whose name another one has renews its lease",
        "extender/service/pools/acknowledgements.py",
        "if newest.uid != pod.uid:",
        "if False:",
        "I6: a process that lives on after a forced deletion serves on",
        (f"{_LEASES}test_a_pod_that_is_read_must_be_the_one_that_is_known",),
    ),
    Mutant(
        "what is withheld is covered by a ledger that has more",
        "extender/service/placing/committer.py",
        "confirmed[name] = min(confirmed[name], decision.target[name]) - count",
        "confirmed[name] -= count",
        "I7 (seeds 1003 and 1004 of pools that move a lot): published before it is prepared",
        (
            "tests/service/placing/test_handovers.py::"
            "test_a_pod_whose_ledger_has_more_than_it_gets_is_waited_for_too",
        ),
    ),
    Mutant(
        "what a vpod publishes in its former pool may be served here",
        _SHARES,
        "if state.pods[name].pod is not None or state.is_member(state.pods[name])",
        "if claim",
        "I6 (seed 415 of pools that move a lot): it is served there",
        (f"{_POOL}test_what_a_vpod_publishes_in_its_former_pool_is_not_served_here_too",),
    ),
    Mutant(
        "while no StatefulSet is known, nothing that is published counts",
        _SHARES,
        "state.pods[name].pod is not None or state.is_member(state.pods[name])",
        "state.is_member(state.pods[name])",
        "what a new leader has postponed is never served",
        (f"{_POOL}test_while_no_stateful_set_is_known_a_pod_serves_what_is_published_on_it",),
    ),
    Mutant(
        "the names of very many busy shares are stored however long they are",
        "extender/model/assignment.py",
        "if known.all_busy or len(text) > ACKNOWLEDGED_BYTES_MAX:",
        "if known.all_busy:",
        "pods grow beyond what the API server stores (seed 20732048)",
        (
            "tests/model/test_assignment.py::TestAnnotations::"
            "test_if_the_names_of_the_busy_ones_do_not_fit_all_count_as_busy",
        ),
    ),
)
