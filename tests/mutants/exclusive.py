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
_EXPIRY = "extender/service/pools/adapter_leases.py"
_EXPIRED = "tests/service/pools/test_adapter_leases.py::"

EXCLUSIVE = (
    Mutant(
        "what was asked twice is never forgotten",
        _HOLDERS,
        "elif vpod in pod.asked:",
        "elif False:",
        "liveness: after two failed writes of an assignment nobody serves the vpod any more",
        (f"{_TEST}test_what_was_asked_twice_and_never_arrived_is_forgotten",),
    ),
    Mutant(
        "a pod that is gone was not told what was being written",
        _HOLDERS,
        "if until is None or vpod in pod.asked:",
        "if until is None and vpod not in pod.asked:",
        "I6: the write had arrived, and another pod is told to serve the same",
        (f"{_TEST}test_a_pod_that_goes_while_it_is_told_to_serve_keeps_a_lease",),
    ),
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
        "None if stopped else holds._replace(until=until)",
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
        "pod.asked[vpod] = asked._replace(",
        "_ = asked._replace(",
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
        "if confirmed or (said.load and not renews):",
        "if True:",
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
    Mutant(
        "a renewal is not stored again",
        _EXPIRY,
        "timestamp(self._now()) if is_late else stored.renewed",
        "stored.renewed",
        "the leader takes adapters that are well for such that hang",
        (
            f"{_EXPIRED}test_renewals_are_stored_once_a_minute",
            f"{_EXPIRED}test_when_a_replica_stores_a_renewal",
        ),
    ),
    Mutant(
        "a replica whose watch was behind goes by what it has seen",
        _EXPIRY,
        "max(self._clock() - known.stored_at, stored_s_ago) >= STORED_S",
        "self._clock() - known.stored_at >= STORED_S",
        "the leader takes an adapter that is well for one that hangs (seed 122428729)",
        (f"{_EXPIRED}test_when_a_replica_stores_a_renewal",),
    ),
    Mutant(
        "a new leader has seen all that there was",
        _EXPIRY,
        "max(known.since, began)",
        "known.since",
        "each failover takes adapters that are well for such that hang",
        (f"{_EXPIRED}test_a_pod_is_marked_by_its_leader_a_lease_after_it_began_to_lead",),
    ),
    Mutant(
        "a lease runs out when it is not stored for a minute",
        _EXPIRY,
        "unheard_s + known.lease_s",
        "unheard_s",
        "I6 and I4: the adapter still has it",
        (f"{_EXPIRED}test_renewals_are_stored_once_a_minute",),
    ),
    Mutant(
        "an adapter has the lease that its pool has now",
        _EXPIRY,
        "max(known.lease_s, told)",
        "told",
        "I4: it does not know yet that its lease is shorter",
        (
            f"{_EXPIRED}test_adapters_whose_lease_is_made_shorter_are_not_marked"
            "_while_they_have_the_longer_one",
        ),
    ),
    Mutant(
        "an adapter hears at once that it needs a lease",
        _EXPIRY,
        "STORED_S if is_renewed(pod.acknowledged_text) else HEARS_S",
        "STORED_S",
        "I6: it serves until its file says so",
        (
            f"{_EXPIRED}test_adapters_that_serve_when_their_pool_becomes_exclusive_are_not_marked",
            f"{_EXPIRED}test_an_adapter_that_has_never_acknowledged_has_time_to_hear_of_its_lease",
        ),
    ),
    Mutant(
        "a lease that has run out is marked whatever is stored by now",
        _EXPIRY,
        "[same_pod(pod), same, set_text(ACKNOWLEDGED_ANNOTATION, text)]",
        "[same_pod(pod), set_text(ACKNOWLEDGED_ANNOTATION, text)]",
        "a leader whose watch is behind marks an adapter that is well",
        (f"{_EXPIRED}test_what_the_leader_has_not_seen_yet_is_not_marked",),
    ),
    Mutant(
        "a lease that has run out is marked on the next pod of the ordinal",
        _EXPIRY,
        "[same_pod(pod), same, set_text(ACKNOWLEDGED_ANNOTATION, text)]",
        "[same, set_text(ACKNOWLEDGED_ANNOTATION, text)]",
        "its adapter has said nothing yet",
        (f"{_EXPIRED}test_what_the_leader_has_not_seen_yet_is_not_marked",),
    ),
    Mutant(
        "a pod whose adapter's lease has run out is Ready",
        "extender/model/decode.py",
        "is_ready and not lease_expired",
        "is_ready",
        "its shares stay where nobody serves them",
        (f"{_EXPIRED}test_an_adapter_that_is_cut_off_stops_first_and_then_loses_its_shares",),
    ),
    Mutant(
        "if no adapter is heard, each of them is given up",
        "extender/engine/rebalance/absence.py",
        "few_heard and _lease_expired(pod)",
        "False",
        "I4: the first one that is heard again gets the shares of all others",
        (
            f"{_EXPIRED}test_if_no_adapter_reaches_the_service_nothing_moves"
            "_and_the_first_one_gets_no_more",
        ),
    ),
    Mutant(
        "a pod that has never acknowledged shows that adapters reach the service",
        "extender/engine/rebalance/absence.py",
        "and is_renewed(known.pod.acknowledged_text)",
        "",
        "I4: it gets the shares of all others",
        (
            "tests/engine/rebalance/test_absence.py::"
            "test_a_pod_that_has_never_acknowledged_says_nothing_about_the_way_to_the_service",
        ),
    ),
    Mutant(
        "a second write forgets what the first one may still tell",
        _HOLDERS,
        "indexes=earlier.indexes | asked.indexes",
        "indexes=asked.indexes",
        "I6: the first one arrives, and an index is served twice",
        (f"{_TEST}test_what_an_unanswered_write_may_tell_is_held_after_the_next_write",),
    ),
    Mutant(
        "who knows of Prepare has let go, though it says that it is busy",
        _HOLDERS,
        "keeps = before.vreplicas and not adapter.has_done(vpod)",
        "keeps = before.vreplicas and not adapter.knows_newest()",
        "I6: a share that comes back is served here still, and elsewhere",
        (f"{_TEST}test_who_is_busy_with_what_it_is_told_to_prepare_still_holds_what_it_had",),
    ),
)
