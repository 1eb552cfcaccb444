"""Breaks of writing: the committer and its parts, the reconciler, the evictor."""

from tests.mutants.mutant import Mutant

_COMMITTER = "extender/service/placing/committer.py"
_PATCH = "extender/service/placing/ledger_patch.py"
_TEXTS = "extender/service/placing/annotation_patch.py"
_RECONCILER = "extender/service/pools/reconciler.py"
_EVICTOR = "extender/service/pools/evictor.py"
_MOVES = "extender/service/pools/pool_moves.py"
_TEST = "tests/service/placing/test_committer.py::"
_PLACER = "tests/service/placing/test_placer.py::"
_REPAIRS = "tests/service/pools/test_reconciler.py::"
_EVICTS = "tests/service/pools/test_evictor.py::"
_ALONE = "tests/service/pools/test_reconciler_without_placer.py::"
_BUDGET = "tests/service/pools/test_evictor_budget.py::"
_ORDER = "tests/service/placing/test_committer_doubts.py::"

COMMITTER = (
    Mutant(
        "a caller is answered what a write under way may take",
        _COMMITTER,
        "confirmed, _ = self._publishable_ledgers(decision)",
        "claims = self._caches.state.pool(decision.pool).claims_of(decision.vpod)\n        "
        "confirmed = {name: claim.ledger.vreplicas for name, claim in claims.items()}",
        "I2: a lowering that was given up compares with what the ledger has become again",
        (
            "tests/service/http/test_schedule.py::test_what_a_write_that_may_still_arrive_would_take_away_is_not_answered",
        ),
    ),
    Mutant(
        "what a caller publishes is written back to a pod that is too small for it",
        _COMMITTER,
        "max(count, min(published, claim.ledger.vreplicas))",
        "max(count, published)",
        "liveness: no ledger can have it, and the caller is never answered that it has to leave",
        (
            "tests/service/http/test_schedule.py::"
            "test_who_publishes_more_than_its_pod_came_back_with_is_answered_what_the_ledger_has",
        ),
    ),
    Mutant(
        "status before ledger",
        _COMMITTER,
        "(self._write_ups, self._write_statuses, self._write_downs)",
        "(self._write_statuses, self._write_ups, self._write_downs)",
        "wrong order of writes: more goes to the ledger first (I2)",
        (
            f"{_TEST}test_growing_writes_the_ledger_before_the_status",
            "simulate --seed 20002 --seeds 1 --events 120",
        ),
    ),
    Mutant(
        "source ledger before status",
        _COMMITTER,
        "(self._write_ups, self._write_statuses, self._write_downs)",
        "(self._write_ups, self._write_downs, self._write_statuses)",
        "wrong order of writes: less goes to the status first (I2)",
        (f"{_TEST}test_shrinking_writes_the_status_before_the_ledger",),
    ),
    Mutant(
        "writes without leading",
        _COMMITTER,
        "if not self.leadership.leads(pool):",
        "if not batch.decisions:",
        "a process that was paused for longer than its lease goes on writing",
        (f"{_TEST}test_who_no_longer_leads_writes_nothing_more",),
    ),
    Mutant(
        "a write in doubt is released",
        _COMMITTER,
        "if not (in_doubt or key in batch.unknown or key in batch.waiting):",
        "if not (key in batch.waiting):",
        "it may have arrived: its slots would be promised again",
        (f"{_TEST}test_a_write_in_doubt_keeps_its_slots_until_its_reservation_expires",),
    ),
    Mutant(
        "reservations are never released",
        _COMMITTER,
        "                    self._caches.state.release(owner, pool, key)\n                elif",
        "                    pass\n                elif",
        "slots would be held twice until they expire",
        (
            f"{_TEST}test_a_commit_cancelled_after_any_write_reserves_nothing_and_leaves_all_covered",
        ),
    ),
    Mutant(
        "publishes what no ledger covers",
        _COMMITTER,
        "target = publishable(decision.target, confirmed, published)",
        "target = dict(decision.target)",
        "I2: a ledger write may have failed",
        (f"{_TEST}test_what_no_ledger_took_is_not_published",),
    ),
    Mutant(
        "a ledger beyond a dimension is written",
        "extender/service/placing/ledger_patch.py",
        "if taken.get(name, 0) > max(most, before.get(name, 0)):",
        "if taken.get(name, 0) < 0:",
        "I1: the last check before a write",
        (
            "tests/service/placing/test_committer.py::"
            "test_a_ledger_beyond_a_dimension_of_the_pool_is_never_written",
        ),
    ),
    Mutant(
        "a ledger goes below what is published",
        _COMMITTER,
        "stays = max(count, min(published, claim.ledger.vreplicas))",
        "stays = count",
        "I2: the status write may have published less than decided, or failed",
        (f"{_ORDER}test_what_another_leader_publishes_meanwhile_stays_in_the_ledger",),
    ),
    Mutant(
        "what others write meanwhile is taken for agreed",
        "extender/service/placing/placer.py",
        "if vpod is None or vpod.placements != decision.target:",
        "if vpod is None:",
        "somebody else's status would stand although nobody has decided it",
        (f"{_PLACER}test_what_others_publish_while_a_batch_is_written_is_decided_again",),
    ),
    Mutant(
        "what is published elsewhere does not count",
        _COMMITTER,
        "published = max(claim.published, elsewhere.get(name, 0))",
        "published = claim.published",
        "a vpod that has changed its poolRef still publishes its old pods (I2)",
        (f"{_ORDER}test_what_a_vpod_that_has_left_still_publishes_stays_in_the_ledger",),
    ),
    Mutant(
        "ledgers are lowered while the status is in doubt",
        _COMMITTER,
        "if self.status_doubts.is_doubtful(key):",
        "if not key:",
        "I2: the status may have been written after all",
        (f"{_PLACER}test_a_ledger_covers_what_a_status_may_say_while_that_is_in_doubt",),
    ),
    Mutant(
        "a doubt about a version that is over already",
        "extender/service/placing/status_doubts.py",
        "if latest is None or latest.resource_version != vpod.resource_version:",
        "if latest is None:",
        "I4: what was decided for it stays reserved, and the vpod is placed by that",
        (f"{_ORDER}test_a_newer_version_that_came_while_the_write_was_under_way_leaves_no_doubt",),
    ),
    Mutant(
        "a doubt ends by itself",
        "extender/service/placing/status_doubts.py",
        "return vpod_key in self._doubts",
        "return any(\n"
        "            key == vpod_key and self._clock() < doubt.list_tells_at + UNDER_WAY_S\n"
        "            for key, doubt in self._doubts.items()\n"
        "        )",
        "I2: that no newer version comes proves nothing while the watch is silent",
        (
            f"{_ORDER}test_a_conflict_is_in_doubt_until_the_newer_version_is_seen_however_long_that_takes",
            f"{_ORDER}test_a_write_without_an_answer_is_in_doubt_until_vpods_are_listed_after_its_time",
        ),
    ),
    Mutant(
        "a list settles what may still be under way",
        "extender/service/placing/status_doubts.py",
        "if doubt.source == source and doubt.list_tells_at <= began:",
        "if doubt.source == source:",
        "I2: the write may arrive after it",
        (f"{_ORDER}test_a_list_begun_while_a_write_may_be_under_way_tells_nothing_of_it",),
    ),
    Mutant(
        "another's reservation is lowered",
        _COMMITTER,
        "if claim.reserved is None or claim.owner != batch.owner:",
        "if claim.reserved is None:",
        "a bind has brought it there since the decision",
        (f"{_ORDER}test_what_a_bind_has_reserved_since_the_decision_stays_in_the_ledger",),
    ),
    Mutant(
        "a new leader lowers ledgers at once",
        _COMMITTER,
        "            self.leadership.no_predecessor_writes(batch.pool)\n            or key",
        "            True\n            or key",
        "I2: a status of the leader before may still be under way",
        (
            f"{_ORDER}test_a_ledger_is_not_lowered_while_a_status_of_the_leader_before_may_be_under_way",
        ),
    ),
    Mutant(
        "a status for an older spec",
        _COMMITTER,
        "decision.decided_version != _version(vpod) or",
        "vpod is None or",
        "stale read: it would claim to have observed what nobody has decided",
        (f"{_TEST}test_a_vpod_recreated_under_the_same_name_does_not_get_its_predecessors_status",),
    ),
    Mutant(
        "what a vanished vpod had is taken from its successor",
        _COMMITTER,
        "if decision.decided_version != _version(self._of_pool(key, batch.pool)):",
        "if decision.decided_version is None:",
        "a vpod that came back under its old name wants what it finds",
        (f"{_ORDER}test_a_vpod_that_comes_back_while_its_release_is_written_keeps_its_ledgers",),
    ),
    Mutant(
        "the watch alone proves a ledger",
        _COMMITTER,
        "return not self.ledger_confirmations.is_fresh(pod.uid, pod.ledger_text, "
        "changed_since=since)",
        "return False",
        "stale read: the pod may be gone by now (I2)",
        (
            f"{_TEST}test_what_only_the_watch_has_told_of_a_ledger_is_asked_for_before_it_is_published",
        ),
    ),
    Mutant(
        "a confirmation lasts for ever",
        "extender/service/placing/ledger_confirmations.py",
        'return self._clock() - self._at.get(uid, float("-inf")) < FRESH_S',
        "return uid in self._at",
        "stale read: an answer of a minute ago says nothing of now (I2)",
        (f"{_ORDER}test_a_proof_is_good_for_five_seconds_from_when_it_was_asked_for",),
    ),
    Mutant(
        "of several late writes of a pod only the last is remembered",
        "extender/service/placing/ledger_confirmations.py",
        "for known, until in self._late.get(uid, {}).items() if now < until",
        "for known, until in self._late.get(uid, {}).items() if now < until < 0",
        "ABA: the ledger is again what an earlier one looks for (I2)",
        (f"{_ORDER}test_of_several_late_writes_of_a_pod_each_is_remembered",),
    ),
    Mutant(
        "a doubt about a status never ends",
        "extender/service/placing/status_doubts.py",
        "if doubt is not None and doubt.look_at <= self._clock():",
        "if doubt is not None and not vpod_key:",
        "I5: ledgers would stay too large for ever",
        (
            f"{_ORDER}test_a_write_without_an_answer_is_in_doubt_until_vpods_are_listed_after_its_time",
        ),
    ),
    Mutant(
        "a doubt that has ended keeps its reservation",
        "extender/service/placing/status_doubts.py",
        "self._caches.state.release(doubt.owner, doubt.pool, key)",
        "return",
        "the vpod would be decided by what nobody knows of, though it is known now",
        (f"{_ORDER}test_a_newer_version_of_the_vpod_ends_the_doubt_and_its_reservation",),
    ),
    Mutant(
        "our own write in doubt counts as another's",
        "extender/service/watching/own_writes.py",
        "if not isinstance(error, OutcomeUnknown):",
        "if isinstance(error, ApiError):",
        "people would be warned of a forger that we are ourselves",
        (
            "tests/service/watching/test_unexpected_writes.py::test_our_own_writes_alarm_nobody_whatever_becomes_of_their_answers",
        ),
    ),
    Mutant(
        "every write counts as our own",
        "extender/service/watching/own_writes.py",
        "return text in self._texts.get(uid, ())",
        "return text is not None",
        "a forged ledger would be put right and nobody told",
        (
            "tests/service/watching/test_unexpected_writes.py::test_a_forged_ledger_of_a_bound_pod_is_told_and_put_right",
        ),
    ),
    Mutant(
        "why a move in doubt was made is forgotten",
        "extender/service/placing/unreported_moves.py",
        "if decision.moves:",
        "if not decision.vpod:",
        "I4: a move happens only for a recorded reason",
        (f"{_PLACER}test_a_move_whose_answer_was_lost_is_told_with_its_reason_all_the_same",),
    ),
    Mutant(
        "a move whose answer was lost is told twice",
        "extender/service/placing/unreported_moves.py",
        "known.published if published is None else published",
        "known.published",
        "I4: what leaves next is called a move that was made before",
        (
            "tests/service/placing/test_committer_doubts.py"
            "::test_what_a_status_whose_answer_was_lost_has_told_is_not_told_again",
        ),
    ),
    Mutant(
        "a move that was not told is told of what leaves for another reason",
        "extender/service/placing/unreported_moves.py",
        "left[own.from_pod] -= own.vreplicas",
        "pass",
        "I4: a pool tells, and counts in its budget, what another pool had decided",
        (
            "tests/service/placing/test_committer_doubts.py"
            "::test_a_move_is_not_told_of_vreplicas_that_leave_for_a_reason_of_the_decision_itself",
        ),
    ),
    Mutant(
        "a ledger over the slots is written",
        _PATCH,
        "if total > slots and total > ledger_slots(pod.ledger):",
        "if total < 0:",
        "I1, whatever was decided",
        (f"{_TEST}test_a_ledger_larger_than_the_pods_slots_is_never_written",),
    ),
    Mutant(
        "no compare-and-swap of the ledger",
        _TEXTS,
        'return {"op": "test", "path": annotation_path(annotation), "value": text}',
        "return same_pod(pod)",
        "I1: two leaders would overwrite each other",
        (
            f"{_TEST}test_a_ledger_that_somebody_else_wrote_is_not_overwritten",
            "simulate --seed 1 --seeds 1 --events 60",
        ),
    ),
    Mutant(
        "no UID in the ledger's patch",
        _PATCH,
        "patch = [same_pod(pod), same_text(",
        "patch = [same_text(",
        "a recreated pod would get its predecessor's ledger",
        (f"{_TEST}test_a_recreated_pod_does_not_get_its_predecessors_ledger_patch",),
    ),
    Mutant(
        "a first ledger is not compared with anything",
        _TEXTS,
        'return {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version}',
        "return same_pod(pod)",
        "I1: two leaders would each begin a ledger",
        (
            f"{_ORDER}test_a_ledger_that_somebody_else_has_begun_is_not_overwritten",
            "simulate --seed 3 --seeds 3 --events 60",
        ),
    ),
    Mutant(
        "what a move could not take is not published on its old pod",
        _PATCH,
        "if back > 0:",
        "if back < 0:",
        "vreplicas would be lost on the way (I3)",
        (f"{_TEST}test_a_move_whose_new_pod_refuses_stays_published_where_it_was",),
    ),
    Mutant(
        "a failed ledger write counts as done",
        _PATCH,
        "    return all(\n        ledger.get",
        "    return bool(change) or all(\n        ledger.get",
        "the decision would be settled though nobody has written it",
        (f"{_PLACER}test_a_lost_compare_and_swap_is_decided_again_after_a_backoff",),
    ),
)

LOOPS = (
    Mutant(
        "nobody looks again at a status that arrives late",
        "extender/service/pools/availability.py",
        "caches.vpods.add_event_handler(self._vpod_changed)",
        "",
        "a vpod would not be told for a minute that it is served",
        (
            "tests/service/pools/test_availability.py"
            "::test_a_pod_that_is_ready_while_the_first_status_is_being_written_is_told_in_seconds",
        ),
    ),
    Mutant(
        "what a caller was answered is forgotten",
        "extender/service/placing/placer.py",
        "self.external_vpods.note_answer(vpod, covered)",
        "pass",
        "I2: a drain takes it from the ledger before the caller asks again",
        ("tests/simulation/test_callers.py::test_it_stays_on_a_pod_that_is_drained",),
    ),
    Mutant(
        "a foreign object that its labels take to a pool which refuses it is nobody's",
        "extender/model/foreign_kinds.py",
        "on_pods or (labelled if pods else [item for item in labelled if item.pool.key == has])",
        "on_pods or [item for item in labelled if not pods and item.pool.key == has]",
        "I2: its ledgers are lowered, and nobody writes the status that publishes them",
        (
            "tests/model/test_foreign_kinds.py::TestWhoseItIs::"
            "test_labelled_for_a_pool_not_for_it_and_on_others_pods_it_is_that_pools_to_be_refused",
        ),
    ),
    Mutant(
        "a foreign object that its pool does not select any more is nobody's at once",
        "extender/model/foreign_kinds.py",
        "on_pods or (labelled if pods else [item for item in labelled if item.pool.key == has])",
        "on_pods or (labelled if pods else [])",
        "I2: a status of ours is on its way, and its ledger is lowered meanwhile",
        (
            "tests/model/test_foreign_kinds.py::TestWhoseItIs::"
            "test_selected_by_nobody_any_more_it_stays_with_the_pool_that_has_it",
        ),
    ),
    Mutant(
        "an event of a watched object wipes what its caller was answered",
        "extender/service/watching/external_vpods.py",
        "for vpod in (newest, self._watched.latest(key), self._vpods.get(key))",
        "for vpod in (newest,)",
        "I2: the ledger is lowered below what the caller then publishes",
        (
            "tests/service/watching/test_external_vpods.py::TestAWatchedObjectThatIsAskedAbout::"
            "test_an_event_after_the_answer_takes_nothing_of_it_away",
        ),
    ),
    Mutant(
        "a source that is removed takes its objects away from their callers",
        "extender/service/watching/external_vpods.py",
        "if not is_caller_kept(pool.adapter_pool if pool is not None else None, asked.key):",
        "if pool is not None:",
        "I2: the ledgers of objects that callers publish are freed",
        (
            "tests/service/watching/test_external_vpods.py::TestAWatchedObjectThatIsAskedAbout::"
            "test_a_pool_that_no_longer_declares_the_kind_leaves_it_to_the_caller",
        ),
    ),
    Mutant(
        "an object that its pool reads otherwise is deleted and comes anew",
        "extender/service/watching/foreign_kind.py",
        "            self._caches.vpods.reread(vpod)\n",
        "            self._caches.vpods.delete(have)\n"
        "            self._caches.vpods.update(vpod)\n",
        "I2: it ends the doubt about a status write that may still arrive",
        (
            "tests/service/watching/test_sources.py::"
            "test_a_pool_that_reads_an_object_otherwise_does_not_lose_it_meanwhile",
        ),
    ),
    Mutant(
        "what a caller gave back is forgotten while a pod is about to bring it back",
        "extender/service/watching/external_vpods.py",
        "GIVEN_BACK_MAX if any(_awaits_pods(pool) for pool in self._state.pools.values()) else 0",
        "0",
        "its slots are taken for ever: nobody else releases it",
        (
            "tests/service/http/test_schedule.py::"
            "test_what_was_given_back_while_its_pod_was_away_is_taken_from_the_pod_that_comes_back",
        ),
    ),
    Mutant(
        "what a caller gave back is forgotten while an ordinal that is gone may bring it back",
        "extender/service/watching/external_vpods.py",
        """ or any(
        state.last_ledger for state in pool.unbound.values()
    )""",
        "",
        "its slots are taken for ever: nobody else releases it",
        (
            "tests/service/watching/test_external_vpods.py::"
            "test_a_vpod_that_gave_all_back_is_remembered_while_a_pod_may_bring_some_back",
        ),
    ),
    Mutant(
        "a caller that has changed its pool is forgotten before the first one's pods are back",
        "extender/service/watching/external_vpods.py",
        "if any(_awaits_pods(pool) for pool in self._state.pools.values()) else 0",
        "if any(_awaits_pods(self._state.pool(self._vpods[key].pool)) for key in self._given_back) "
        "else 0",
        "its slots are taken for ever: nobody else releases it",
        (
            "tests/service/http/test_schedule.py::"
            "test_what_was_given_back_in_another_pool_is_taken_from_a_pod_that_comes_back",
        ),
    ),
    Mutant(
        "what nobody wants any more is told as moved",
        "extender/model/moves.py",
        "- max(0, sum(before.values()) - wanted)",
        "",
        "I4 as told: a vpod that was scaled down says that the cluster has moved it",
        ("tests/model/test_moves.py::test_what_nobody_wants_any_more_is_not_told_as_moved",),
    ),
    Mutant(
        "decisions of a batch do not reserve",
        "extender/service/placing/placer.py",
        "self._committer.reserve(owner, decision)",
        "pass",
        "two vpods would be promised the same slots",
        (f"{_PLACER}test_a_deleted_vpod_leaves_the_ledgers",),
    ),
    Mutant(
        "forged ledgers are not repaired",
        _RECONCILER,
        "pod.slots is None or pod.ledger_text is None or bool(pod.ledger_error) or "
        "self._slots_differ(pod)",
        "pod.slots is None",
        "a ledger that cannot be read keeps its pod from all work",
        (f"{_ALONE}test_a_ledger_that_cannot_be_read_is_written_again_with_what_is_published",),
    ),
    Mutant(
        "a lost ledger is written again empty",
        "extender/node/bind_ledger.py",
        "    return ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)\n",
        "    return {}\n",
        "I2: the statuses say what stands there",
        (f"{_ALONE}test_a_ledger_that_cannot_be_read_is_written_again_with_what_is_published",),
    ),
    Mutant(
        "ledgers and statuses that differ are left alone",
        _RECONCILER,
        "        await self._requeue_differences(bucket)\n",
        "",
        "no event will ever put that right",
        (f"{_ALONE}test_a_ledger_and_a_status_that_differ_are_decided_again",),
    ),
    Mutant(
        "reservations do not expire",
        _RECONCILER,
        "self._caches.state.expire(self._clock())",
        "self._caches.state.expire(-1.0)",
        "I5: slots would be held for ever",
        (f"{_REPAIRS}test_a_reservation_that_no_write_confirmed_expires",),
    ),
    Mutant(
        "the budget is each look's",
        _EVICTOR,
        "budget=pool.moves_per_period - pool_moves.spent,",
        "budget=pool.moves_per_period,",
        "triggers would move the whole pool at once",
        (f"{_BUDGET}test_what_one_look_has_spent_the_next_one_has_not",),
    ),
    Mutant(
        "a pod that is not Ready is given up at once",
        "extender/engine/rebalance/absence.py",
        "name: absence.counts_from + limit for",
        "name: absence.counts_from for",
        "a restart would move everything",
        (
            "tests/engine/rebalance/test_absence.py::test_a_pod_that_is_not_ready_is_given_up_when_its_time_has_passed_by_our_clock",
            "simulate --seed 7000 --seeds 4 --events 60 --profile tests/mutants/failing_nodes.yaml",
        ),
    ),
    Mutant(
        "a pod that crashes counts as one that works",
        "extender/engine/scaling/packing.py",
        "if pod.serving and not pod.leaving",
        "if pod.bound and not pod.leaving",
        "if all adapters crash, the pool doubles, and all that they hold moves",
        (
            "tests/engine/scaling/test_scaling.py::TestPodsTakenForLost::"
            "test_a_pod_that_has_not_been_given_up_yet_and_is_not_ready_is_not_at_work",
        ),
    ),
    Mutant(
        "what a drained pod has counts twice in its zone",
        "extender/engine/scaling/packing.py",
        "if name in self._left:",
        "if False:",
        "under a hard zone rule the pool grows although placing finds room",
        (
            "tests/engine/scaling/test_scaling.py::"
            "test_what_a_drained_pod_has_counts_once_in_its_zone",
        ),
    ),
    Mutant(
        "a pod that waited for a machine has no time to start",
        "extender/engine/rebalance/absence.py",
        "if seen.bound and not self.seen.bound and now",
        "if False and now",
        "with a node autoscaler each new pod is given up as it starts, and replaced",
        (
            "tests/engine/rebalance/test_absence.py::"
            "test_a_pod_that_has_waited_for_a_machine_gets_its_time_to_start",
        ),
    ),
    Mutant(
        "a pod whose binding is under way is no room",
        "extender/engine/scaling/packing.py",
        "return not (pod.draining or (pod.certainly_bound and not _restarts(pod)))",
        "return not (pod.draining or (pod.bound and not _restarts(pod)))",
        "a pool gets one pod too many whenever the autoscaler looks during a binding",
        (
            "tests/engine/scaling/test_scaling.py::"
            "test_a_pod_whose_binding_is_under_way_is_still_to_come",
        ),
    ),
    Mutant(
        "a standby does not see who is absent",
        "extender/service/pools/rescheduler.py",
        "self._absences.setdefault(key, Absences()).note(state, now)",
        "self._absences.setdefault(key, Absences())",
        "each failover would begin to count anew",
        (
            "tests/service/pools/test_rescheduler.py::test_a_standby_that_takes_over_goes_on_from_what_it_has_seen",
        ),
    ),
    Mutant(
        "a failure gives up what a status in doubt may publish",
        _COMMITTER,
        "if not (in_doubt or key in batch.unknown or key in batch.waiting):",
        "if not (key in batch.unknown or key in batch.waiting):",
        "I1 in bytes, or slots (seed 9001469): others get the room of what is published",
        (f"{_ORDER}test_a_later_failure_does_not_give_up_what_a_status_in_doubt_may_publish",),
    ),
    Mutant(
        "a look forgets what its period has moved",
        _EVICTOR,
        "budget=pool.moves_per_period - pool_moves.spent,",
        "budget=pool.moves_per_period + 3,",
        "I4: a period moves more than movesPerPeriod",
        ("simulate --seed 33 --seeds 1 --events 120 --profile tests/mutants/moving.yaml",),
    ),
    Mutant(
        "no cool-down",
        _EVICTOR,
        "            cooling=cooling,\n",
        "",
        "a vpod would be moved again and again",
        (
            f"{_EVICTS}test_a_vpod_that_was_moved_cools_down",
            "simulate --seed 105 --seeds 1 --events 120 --profile tests/mutants/moving.yaml",
        ),
    ),
    Mutant(
        "a new leader does not know what was moved",
        _MOVES,
        "at = _moved_at(vpod) if vpod is not None else None",
        "at = None if vpod is not None else 0.0",
        "a failover would end every cool-down",
        (f"{_EVICTS}test_a_new_leader_reads_the_cool_down_from_the_status",),
    ),
    Mutant(
        "a dry run moves",
        _EVICTOR,
        "if pool.move_dry_run:",
        "if not pool.key:",
        "nothing may be written in a dry run",
        (f"{_EVICTS}TestDryRun::test_it_tells_and_counts_once_and_writes_nothing",),
    ),
    Mutant(
        "every trigger begins a period",
        _EVICTOR,
        "            if clock() >= due - TIMER_RESOLUTION_S:\n                pool_moves",
        "            if due:\n                pool_moves",
        "the budget would be no budget",
        (f"{_EVICTS}test_the_budget_is_a_periods_however_often_the_pool_is_looked_at",),
    ),
    Mutant(
        "a move that is refused is tried for ever",
        _MOVES,
        "self._refused[0].update({move.vpod for move in planned} - moved)",
        "self._refused[0].clear()",
        "it would hold the budget of all others",
        (
            f"{_EVICTS}TestWhatGoesWrong::test_moves_that_are_refused_do_not_hold_the_budget_for_ever",
        ),
    ),
    Mutant(
        "a decision that came too late tells an earlier one's moves",
        "extender/service/placing/committer.py",
        "            batch.stale.add(key)\n            return\n",
        "            batch.stale.add(key)\n            self._report(batch, decision)\n            "
        "return\n",
        "the reason is lost: the status that is written then has none (I4)",
        (
            "tests/service/placing/test_committer_doubts.py::"
            "test_a_move_in_doubt_is_not_told_by_a_stale_decision_nor_where_it_was_not_made",
        ),
    ),
)
