"""Breaks of hand-over: what a move waits for, and what adapters are told meanwhile."""

from tests.mutants.mutant import Mutant

_RULES = "extender/engine/placing/handover.py"
_HAND_OVERS = "extender/service/placing/handovers.py"
_COMMITTER = "extender/service/placing/committer.py"
_PLAN = "extender/engine/placing/plan.py"
_TOLD = "extender/model/assignment.py"
_TEST = "tests/engine/placing/test_handover.py::"
_SAID = f"{_TEST}test_what_an_adapter_has_said_counts_for_what_it_is_told_now"
_WITHHELD = f"{_TEST}test_a_move_is_not_published_before_its_new_adapters_are_prepared"
_TAKEN_OVER = f"{_TEST}test_a_vpod_is_taken_over_once_all_pods_that_it_publishes_serve_it"
_KEEPS = f"{_TEST}test_a_ledger_keeps_what_its_adapter_may_serve"
_IS_TOLD = f"{_TEST}test_what_a_pod_is_told"
_MOVES = "tests/service/placing/test_handovers.py::"
_UNSERVED = "extender/service/pools/unserved_shares.py"
_UNSERVED_TEST = "tests/service/pools/test_unserved_shares.py::"
_SMALLER = (
    f"{_MOVES}test_what_waits_while_its_vpod_gets_smaller_stays_on_the_pod_that_it_is_moved_off"
)

HANDING_OVER = (
    Mutant(
        "a move waits for an adapter that cannot be told of it",
        _RULES,
        "pod.serving and (adapter.is_prepared(vpod, vreplicas) or adapter.is_left_out(vpod))",
        "pod.serving and adapter.is_prepared(vpod, vreplicas)",
        "liveness (seed 260861383): begun and taken back for ever",
        (_WITHHELD,),
    ),
    Mutant(
        "what waits for a hand-over stays where nobody serves it",
        _COMMITTER,
        "self.hand_overs.served_first(decision, vpod.placements)",
        "vpod.placements",
        "I7 (seed 7000022): the pod that serves it is given up",
        (f"{_MOVES}test_what_waits_stays_published_where_it_is_served",),
    ),
    Mutant(
        "what waits while its vpod gets smaller stays on any pod",
        _HAND_OVERS,
        "order = dict.fromkeys((*moved, *serving, *published))",
        "order = dict.fromkeys((*serving, *published))",
        "I4 (seed 41000027): why it leaves that pod is not told",
        (_SMALLER,),
    ),
    Mutant(
        "the status that waits for adapters counts as if it had told of moves",
        _COMMITTER,
        "published = self._published(key, pool) if before else batch.published[key]",
        "published = batch.published[key]",
        "I4 (seed 41000027): why it leaves its old pod is not told",
        (_SMALLER,),
    ),
    Mutant(
        "a move in doubt counts as told where there was nothing to write",
        _COMMITTER,
        "is_shown = dict(shown) == dict(decision.target)",
        "is_shown = True",
        "I4 (seed 30000223): why it leaves its old pod is not told",
        (
            "tests/service/placing/test_committer_doubts.py::"
            "test_a_move_in_doubt_keeps_its_reason_while_its_new_pod_is_not_bound",
        ),
    ),
    Mutant(
        "work is sent to a pod that does not serve it yet",
        _RULES,
        "if not late:",
        "if not late or late:",
        "requests fail between the status and the new adapter's Serve",
        (f"{_TEST}test_where_work_is_sent",),
    ),
    Mutant(
        "a ledger is lowered whatever its adapter is told meanwhile",
        "extender/service/placing/ledger_writer.py",
        "patch.insert(1, same_text(pod, ASSIGNMENT_ANNOTATION, pod.assignment_text))",
        "pass",
        "I7 (seed 124815293): the share leaves while the adapter has begun to serve it",
        (f"{_MOVES}test_what_an_adapter_is_told_to_serve_meanwhile_does_not_leave_its_ledger",),
    ),
    Mutant(
        "what a tenant without the right to the pool hands over comes back",
        _PLAN,
        "self._decided(self._published())",
        "self._decided(self._most_wanted())",
        "its moves are begun and taken back in each period, for ever (seed 124815293)",
        (
            "tests/engine/placing/test_plan.py::"
            "test_a_move_under_way_goes_on_for_a_tenant_that_may_not_use_the_pool_any_more",
        ),
    ),
    Mutant(
        "an adapter that has not read its newest assignment has done it",
        _RULES,
        "and said.generation == told.generation",
        "",
        "I7: it has acknowledged that it serves, and is told to prepare by now",
        (_SAID,),
    ),
    Mutant(
        "an adapter that is prepared for fewer is prepared",
        _RULES,
        "return limited_by_lease or told.vreplicas >= vreplicas",
        "return True",
        "I7: a move into two pods that grows on its way is published too early",
        (_WITHHELD,),
    ),
    Mutant(
        "an adapter that was not heard of its Drain has let go",
        _RULES,
        "return told.state is ShareState.SERVE or not self.has_done(vpod)",
        "return told.state is ShareState.SERVE",
        "I7: its ledger is lowered while it serves",
        (_SAID,),
    ),
    Mutant(
        "a move is published before its new adapter is prepared",
        _RULES,
        "if not unready:",
        "if unready or not unready:",
        "I7: the old one is told to let go before the new one knows of it",
        (
            _WITHHELD,
            f"{_MOVES}test_a_moved_share_is_prepared_served_and_only_then_drained",
        ),
    ),
    Mutant(
        "each part of a move is published by itself",
        _RULES,
        "(*unready, *(name for name in more if name not in unready))",
        "unready",
        "a vpod would move several times, and be taken back from where it has moved",
        (_WITHHELD,),
    ),
    Mutant(
        "growth beside a move waits with it",
        _RULES,
        "held[name] = min(more[name], gone)",
        "held[name] = more[name]",
        "new vreplicas would not be served while another adapter prepares",
        (_WITHHELD,),
    ),
    Mutant(
        "what is not served is handed over",
        _RULES,
        "and pool.pods[name].serving\n        and adapters(name).may_serve(vpod)",
        "and adapters(name).may_serve(vpod)",
        "a pod that is lost would keep its vpods for prepareTimeoutSeconds",
        (f"{_TEST}test_what_leaves_a_pod_that_serves_it_has_to_be_handed_over",),
    ),
    Mutant(
        "a share is drained before others serve it",
        _RULES,
        "return knows and not (adapter.serves(vpod) or adapter.is_left_out(vpod))",
        "return knows and not (adapter.share_of(vpod) or adapter.is_left_out(vpod))",
        "I7: it is published where an adapter has not begun to serve",
        (_TAKEN_OVER,),
    ),
    Mutant(
        "adapters without the contract count as serving on",
        _RULES,
        "return pod.serving and adapters(pod.name).acknowledged is not None",
        "return pod.serving",
        "work is sent to a pod that has perhaps let go",
        ("tests/engine/placing/test_handover.py::test_where_work_is_sent",),
    ),
    Mutant(
        "a ledger loses what its adapter serves",
        _RULES,
        "return told.state is ShareState.SERVE or now < epoch_s(told.deadline, 0.0)",
        "return told.state is not ShareState.SERVE and now < epoch_s(told.deadline, 0.0)",
        "I7: nobody has told the adapter to let go",
        (_KEEPS,),
    ),
    Mutant(
        "an adapter that never lets go keeps its share",
        _RULES,
        "return told.state is ShareState.SERVE or now < epoch_s(told.deadline, 0.0)",
        "return True",
        "liveness: a pod would never be empty",
        (
            _KEEPS,
            f"{_MOVES}test_an_adapter_that_does_not_let_go_loses_its_share_at_its_deadline",
        ),
    ),
    Mutant(
        "the deadline of a drain begins anew",
        _RULES,
        "return ShareInstruction(current.state, current.peer, current.deadline, current.intent)",
        "return drain() or ShareInstruction()",
        "liveness: each write of the assignment would give the adapter more time",
        (_IS_TOLD,),
    ),
    Mutant(
        "a new adapter is told to serve before the status says so",
        _RULES,
        "if not preparing and current is None and not _lacks_others(pool, vpod):",
        "if current is None:",
        "the adapters of both pods would serve at once, and take over from each other",
        (
            _IS_TOLD,
            f"{_MOVES}test_a_moved_share_is_prepared_served_and_only_then_drained",
        ),
    ),
    Mutant(
        "a share that is served again keeps its epoch",
        _TOLD,
        "(current.state is ShareState.DRAIN and told.state is not ShareState.DRAIN)",
        "False",
        "writes of the pod that served it meanwhile would not be fenced off",
        (
            "tests/model/test_assignment.py::TestNextAssignment::"
            "test_a_share_has_a_new_epoch_where_another_pod_may_have_served_it",
        ),
    ),
    Mutant(
        "epochs do not count what is stored",
        _TOLD,
        "return max(self._seen_version(), at_least, self._stored + 1)",
        "return max(self._seen_version(), at_least)",
        "after a restore of etcd a share's epoch would be smaller than the one before",
        (
            "tests/model/test_assignment.py::TestEpochs::test_each_is_greater_than_all_that_are_stored",
        ),
    ),
    Mutant(
        "epochs run ahead while writes fail",
        _TOLD,
        "return max(self._seen_version(), at_least, self._stored + 1)",
        "self._stored = max(self._seen_version(), at_least, self._stored + 1); return self._stored",
        "the next leader's would be smaller, once the pod that has the epoch is gone",
        (
            "tests/model/test_assignment.py::TestEpochs::"
            "test_writes_that_fail_do_not_carry_them_past_what_the_next_leader_begins_with",
        ),
    ),
    Mutant(
        "what is taken back moves again at once",
        _PLAN,
        "elif self.taken_back and pod.draining and pod.serving and not pod.abandoned:",
        "elif self.taken_back and pod.condemned:",
        "the same adapter would be asked for ever, and the slots held",
        (
            "tests/engine/placing/test_plan_taken_back.py::"
            "test_it_stays_on_a_pod_that_drains_and_serves_it",
        ),
    ),
    Mutant(
        "a move whose new adapter never gets ready is never taken back",
        _HAND_OVERS,
        "if self._clock() + TIMER_RESOLUTION_S"
        " < self._with_whole_timeout(pool, hand_over.prepare_until):",
        "if hand_over.prepare_until:",
        "liveness: its slots would be held for ever, and nobody told",
        (f"{_MOVES}test_a_move_whose_new_adapter_never_gets_ready_is_taken_back_and_told",),
    ),
    Mutant(
        "what waits for adapters is not reserved",
        _COMMITTER,
        "if not (in_doubt or key in batch.unknown or key in batch.waiting):",
        "if not (in_doubt or key in batch.unknown):",
        "I4: the vpod would be decided from its status, and its move forgotten",
        (f"{_MOVES}test_a_moved_share_is_prepared_served_and_only_then_drained",),
    ),
    Mutant(
        "a ledger is lowered although its adapter has not let go",
        _COMMITTER,
        "if self.hand_overs.retain_or_report(batch.pool, key, name, remaining=share.vreplicas):",
        "if not name:",
        "I7: a drain would empty the old pod's ledger at once",
        (f"{_MOVES}test_a_moved_share_is_prepared_served_and_only_then_drained",),
    ),
    Mutant(
        "an adapter's word brings no vpod back",
        _HAND_OVERS,
        "if hand_over is not None and hand_over.partly_written:",
        "if hand_over is not None and not hand_over.partly_written:",
        "each step of a hand-over would take ten seconds",
        (f"{_MOVES}test_an_acknowledgement_goes_on_with_a_hand_over_at_once",),
    ),
    Mutant(
        "a share that nobody serves counts as served",
        _UNSERVED,
        "if vpod in left and now - since >= handoff.prepare_timeout_s",
        "if False",
        "a tenant's work stands still, and every status says that all is well",
        (
            f"{_UNSERVED_TEST}test_what_an_adapter_that_hangs_is_told_counts_as_not_served_after_a_while",
        ),
    ),
    Mutant(
        "an acknowledgement tells only about the newest assignment",
        _UNSERVED,
        "if known is not None and known.is_told_by(share):",
        "if False:",
        "an adapter of a busy pod is always behind, and all its shares would count as not served",
        (
            f"{_UNSERVED_TEST}test_an_adapter_that_is_always_one_generation_behind_serves_what_it_"
            "has_acknowledged",
        ),
    ),
    Mutant(
        "what a former pod serves during a hand-over counts as not served",
        _UNSERVED,
        "more := count - self._on_former_pods(pool, vpod)",
        "more := count",
        "every planned move would be an outage in the metrics",
        (f"{_MOVES}test_a_share_that_is_prepared_and_then_served_by_nobody_is_told",),
    ),
    Mutant(
        "nobody is told that an adapter did not begin to serve",
        _HAND_OVERS,
        "self._report(view.state, vpod, SERVE, late)",
        "pass",
        "the former pod lets go, and nothing says why nobody serves the share",
        (f"{_MOVES}test_a_share_that_is_prepared_and_then_served_by_nobody_is_told",),
    ),
    Mutant(
        "evictions wait although nobody leads",
        "webhook/evictions.py",
        "if await self._is_unled():",
        "if False:",
        "kubectl drain hangs while the service is down",
        (
            "tests/webhook/test_evictions.py::"
            "test_once_the_lease_has_not_changed_for_a_minute_nothing_waits",
        ),
    ),
    Mutant(
        "a tenant with thousands of vpods is placed first",
        "extender/service/placing/queue.py",
        "for _ in range(turn_vpods):",
        "for _ in range(ORDERED_VPODS_MAX):",
        "a tenant with three vpods waits behind all of them",
        (
            "tests/service/placing/test_queue.py::TestTenantsTakeTurns::"
            "test_one_with_few_light_vpods_does_not_wait_behind_thousands_of_heavy_ones",
        ),
    ),
    Mutant(
        "an adapter that is busy loses a part of its share at once",
        _RULES,
        "return _is_waited_for(pod, adapters) and adapters(pod.name).may_serve(vpod)",
        "a = adapters(pod.name)\n"
        "    return _is_waited_for(pod, adapters) and a.may_serve(vpod) and not a.is_busy(vpod)",
        "I7: it is busy with something new, and the part is served by nobody",
        (f"{_MOVES}test_a_part_that_moves_is_served_until_the_new_adapter_serves",),
    ),
    Mutant(
        "drains that do not fit are left out of the assignment",
        _TOLD,
        "if left < 0 and key in drains:",
        "if False and key in drains:",
        "an adapter loses a share at once that it was to have time for",
        (
            "tests/model/test_assignment.py::TestAnnotations::"
            "test_drains_that_begin_wait_where_not_all_fit",
        ),
    ),
    Mutant(
        "a drain is counted for each try of its write",
        _HAND_OVERS,
        "is_first = self._ended_drains.get(key) != drain.deadline",
        "is_first = True",
        "metrics and events tell of time-outs that there were not",
        (f"{_MOVES}test_a_drain_is_counted_and_told_once_though_its_write_is_retried",),
    ),
    Mutant(
        "a share that is prepared again holds the lease that it had for ever",
        "extender/engine/placing/holders.py",
        "return before._replace(until=before.until or until) if keeps else None",
        "return before._replace(until=None) if keeps else None",
        "an adapter that hangs keeps others from serving for as long as it is tried",
        (
            "tests/engine/placing/test_holders.py::"
            "test_a_share_that_comes_back_as_prepare_does_not_hold_its_old_lease_for_ever",
        ),
    ),
    Mutant(
        "an adapter that was ready can take over although its pod is down",
        _RULES,
        "pod.serving and (adapter.is_prepared(vpod, vreplicas) or adapter.is_left_out(vpod))",
        "adapter.is_prepared(vpod, vreplicas) or adapter.is_left_out(vpod)",
        "I7: it is published where nobody runs, and leaves where it is served",
        (_WITHHELD,),
    ),
    Mutant(
        "a pod that is down need not serve before others let go",
        _RULES,
        "if not pool.pods[name].serving or _does_not_serve(adapters(name), vpod)",
        "if pool.pods[name].serving and _does_not_serve(adapters(name), vpod)",
        "I7: nobody serves until the next pod is back",
        (f"{_MOVES}test_the_former_pod_goes_on_while_the_next_one_is_down",),
    ),
    Mutant(
        "pods that a move does not concern are waited for",
        _HAND_OVERS,
        "if (name in gaining if gaining else view.state.pods[name].serving)",
        "",
        "moves wait for the time-out, and name a pod that has done nothing wrong",
        (f"{_MOVES}test_a_pod_that_the_move_does_not_concern_is_not_waited_for",),
    ),
    Mutant(
        "a second destination has what is left of the first one's time",
        _HAND_OVERS,
        "if waits and (hand_over.prepare_until is None or gaining - hand_over.gaining):",
        "if waits and hand_over.prepare_until is None:",
        "its move is taken back, although it would be ready in time",
        (f"{_MOVES}test_the_next_destination_of_a_hand_over_has_its_own_time_to_get_ready",),
    ),
    Mutant(
        "who lets go of what it should get ready for is ready",
        _TOLD,
        "else key in self.draining or key in self.drained",
        "else False",
        "I7: it is published at an adapter that is about to end",
        (
            "tests/model/test_assignment.py::"
            "test_who_lets_go_of_what_it_should_get_ready_for_is_not_ready",
        ),
    ),
    Mutant(
        "shares may use all bytes of an assignment",
        _TOLD,
        "DRAINS_BYTES: Final = 1024",
        "DRAINS_BYTES: Final = 0",
        "liveness: in a full one, no drain can begin",
        ("tests/model/test_assignment.py::TestAnnotations::test_some_drains_can_always_begin",),
    ),
    Mutant(
        "a share that fits counts as one for which there is no room",
        _RULES,
        "return vpod in self.left_out",
        "return self.share_of(vpod) is None",
        "I7: it is published before its adapter was told",
        (_WITHHELD,),
    ),
    Mutant(
        "under Knative's rules a move that waits is decided back",
        "extender/engine/placing/plan.py",
        "self.hands_over and self.pool.is_reserved(self.key)",
        "False",
        "liveness: such a pool never shrinks",
        (
            f"{_MOVES}test_a_move_that_waits_is_not_decided_back_under_rules_that_start_from_the_"
            "status",
        ),
    ),
    Mutant(
        "a full assignment does not say that its pool has become exclusive",
        "extender/service/pools/assignments.py",
        "(after.shares, after.lease_s) == (before.shares, before.lease_s,)",
        "after.shares == before.shares",
        "I6: an adapter that is cut off serves on, and others serve, too",
        (
            "tests/service/pools/test_assignments.py::"
            "test_a_pod_whose_assignment_is_full_is_told_that_its_pool_becomes_exclusive",
        ),
    ),
    Mutant(
        "what a full assignment left out outlives the time of another leader",
        _HAND_OVERS,
        "self.views.forget_left_out(bucket)",
        "pass",
        "I7: an adapter counts as prepared that has not been told",
        (
            f"{_MOVES}test_what_a_full_assignment_left_out_is_forgotten_once_another_replica_has_led",
        ),
    ),
    Mutant(
        "a reservation that expires during a commit ends the leader's loops",
        _COMMITTER,
        "if decision.target.keys() - claims.keys():",
        "if not key:",
        "liveness: each of the following leaders ends in the same way",
        (
            f"{_MOVES}test_a_move_whose_ledger_is_written_until_its_reservation_expires_is_decided_"
            "again",
        ),
    ),
    Mutant(
        "all pods that a vpod leaves are told one reason",
        _HAND_OVERS,
        "reason = hand_over.reasons.get(pod.name) if hand_over is not None else None",
        "reason = next(iter(hand_over.reasons.values()), None) if hand_over is not None else None",
        "an adapter whose pod goes for good is told that it will be back",
        (f"{_MOVES}test_each_pod_that_a_vpod_leaves_for_a_reason_of_its_own_is_told_that_reason",),
    ),
)
