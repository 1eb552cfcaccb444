"""Breaks of evictions that wait for the hand-over, in the webhook and in the service."""

from tests.mutants.mutant import Mutant

_WEBHOOK = "webhook/evictions.py"
_STEPS = "tests/engine/scaling/test_rollout.py::"
_ANSWERS = "tests/webhook/test_evictions.py::"
_DRAINS = "tests/service/placing/test_evictions.py::"

EVICTIONS = (
    Mutant(
        "the webhook's clock says whether somebody still tries",
        "extender/service/pools/evictions.py",
        "self._renewed[new.uid] = (mark.latest_s, self._clock())",
        "self._renewed[new.uid] = (mark.latest_s, self._clock() - 360.0)",
        "liveness: with a webhook five minutes behind, kubectl drain never ends",
        (f"{_DRAINS}test_an_eviction_ends_by_itself_whatever_the_webhooks_clock_says",),
    ),
    Mutant(
        "the webhook replaces the leader's own marks",
        _WEBHOOK,
        "not (known.by_leader or known.is_fresh(now_s))",
        "not known.is_fresh(now_s)",
        "liveness: with a webhook ahead, a rollout stands still until the mark fades",
        (f"{_ANSWERS}test_a_mark_of_the_leader_stays_as_the_leader_has_written_it",),
    ),
    Mutant(
        "without its StatefulSet a pool gives turns to all",
        "extender/engine/scaling/unavailable.py",
        "if self._pool.stateful_set is None:",
        "if False:",
        "I8: while it is made anew, all pods hand over at once, and nothing can be placed",
        (
            "tests/engine/scaling/test_unavailable.py::"
            "test_without_its_statefulset_a_pool_gives_no_turns",
        ),
    ),
    Mutant(
        "the marks of a rollout that stands still never end",
        "extender/engine/scaling/rollout.py",
        "if one.fades and not one.over)",
        "if one.fades)",
        "liveness: kubectl drain of other pods waits behind them",
        (
            f"{_STEPS}test_the_marks_of_a_rollout_that_stands_still_end_with_the_time_for_their_"
            "hand_over",
        ),
    ),
    Mutant(
        "the surge counts slots alone",
        "extender/engine/scaling/size.py",
        "missing_vreplicas(state, pool, allows, packing.going, packing.above)",
        "missing_vreplicas(state, pool, allows)",
        "a pod is marked before another one can take what it carries, and its time runs out",
        (f"{_STEPS}test_the_surge_comes_before_a_pod_hands_over_what_fits_nowhere",),
    ),
    Mutant(
        "a pod that is being emptied to be removed keeps its place in the queue",
        "extender/service/pools/descheduler.py",
        "state.is_closed(known) or",
        "",
        "liveness: where maxPods leaves no room, other pods wait behind it for their turn",
        ("tests/service/pools/test_descheduler.py::test_a_mark_is_renewed_while_its_pod_is_to_go",),
    ),
    Mutant(
        "an eviction waits for nothing",
        "extender/model/eviction.py",
        "return pool.hands_over and serves and carries",
        "return False",
        "a share is out of service until the ordinal is back",
        (
            f"{_ANSWERS}test_an_eviction_of_a_pod_that_carries_something_is_refused_and_the_pod_marked",
            f"{_DRAINS}test_an_eviction_that_is_tried_again_ends_by_itself_and_leaves_no_gap",
        ),
    ),
    Mutant(
        "an eviction waits for ever",
        _WEBHOOK,
        "if known is not None and known.is_over(pool, now_s):",
        "if False:",
        "an adapter that never lets go would keep a node from being drained",
        (f"{_ANSWERS}test_an_eviction_is_allowed_once_its_deadline_has_passed",),
    ),
    Mutant(
        "the webhook's clock alone ends the leader's marks",
        "extender/model/eviction.py",
        "if not self.by_leader:",
        "if True:",
        "a rollout waits for as long as the leader's clock is ahead (seed 70002264)",
        (f"{_ANSWERS}test_a_mark_of_the_leader_ends_by_its_clock_whatever_the_webhooks_says",),
    ),
    Mutant(
        "a mark that is over is not renewed first",
        "extender/model/eviction.py",
        "or now_s > ends_at_s >= self.latest_s",
        "",
        "the webhook refuses what the leader evicts (seed 70002264)",
        (f"{_STEPS}test_a_pod_that_is_overdue_says_so_in_its_mark_before_it_is_evicted",),
    ),
    Mutant(
        "each attempt is the first",
        _WEBHOOK,
        "mark = Eviction(now_s, now_s) if known is None else known._replace(latest_s=now_s)",
        "mark = Eviction(now_s, now_s)",
        "the deadline would never come",
        (f"{_ANSWERS}test_a_pod_is_marked_again_only_after_a_while_and_keeps_its_first_attempt",),
    ),
    Mutant(
        "a dry run marks the pod",
        _WEBHOOK,
        "is_dry_run(request) or (known",
        "(known",
        "kubectl drain --dry-run=server would move vreplicas",
        (f"{_ANSWERS}test_a_dry_run_is_refused_and_writes_nothing",),
    ),
    Mutant(
        "an attempt at an ordinal's former pod counts",
        "extender/model/eviction.py",
        'if plain["uid"] != pod.uid: return None',
        "pass",
        "a template's or a former pod's annotation would drain the pod",
        (f"{_ANSWERS}test_a_mark_of_the_ordinals_former_pod_does_not_count",),
    ),
    Mutant(
        "a pool without the mode drains what is marked",
        "extender/model/eviction.py",
        "eviction = eviction_of(pod) if pool.hands_over else None",
        "eviction = eviction_of(pod)",
        "only the hand-over makes a drain for an eviction safe",
        (f"{_DRAINS}test_a_pool_without_the_mode_ignores_the_annotation",),
    ),
    Mutant(
        "a late adapter of an evicted pod is tried again after the cool-down",
        "extender/service/placing/handovers.py",
        "if any(pod.why_leaving in VOLUNTARY_DISRUPTIONS for pod in on):",
        "if False:",
        "the eviction would be allowed before the second attempt",
        (
            f"{_DRAINS}test_an_adapter_that_is_late_once_is_tried_again_before_the_eviction_"
            "is_allowed",
        ),
    ),
    Mutant(
        "an eviction waits for less than one hand-over",
        "extender/model/eviction.py",
        "return handoff.prepare_timeout_s + longest_s(handoff) + DEADLINE_MARGIN_S",
        "return handoff.prepare_timeout_s + DEADLINE_MARGIN_S",
        "a pod would go while adapters still are within their time",
        (f"{_DRAINS}test_an_eviction_waits_for_adapters_that_use_all_of_their_time",),
    ),
    Mutant(
        "an eviction is never given up",
        "extender/service/pools/reconciler.py",
        "await give_up_evictions(self._caches, self._fenced, bucket, self._marks)",
        "",
        "a drain that was called off would keep the pod empty for ever",
        (f"{_DRAINS}test_an_eviction_that_nobody_tries_again_is_given_up",),
    ),
)

_ROLLOUT = "extender/engine/scaling/rollout.py"
_ROLLS = "tests/service/pools/test_rollouts.py::"

ROLLOUTS = (
    Mutant(
        "a share that comes back is told to drain for ever",
        "extender/engine/placing/handover.py",
        "if current is None or current.state is ShareState.PREPARE or comes_back:",
        "if current is None or current.state is ShareState.PREPARE:",
        "its vpod would never leave the pods that are drained (seed 91000030)",
        ("tests/engine/placing/test_handover.py::test_what_a_pod_is_told",),
    ),
    Mutant(
        "a rollout evicts a pod that still has shares",
        _ROLLOUT,
        "goes = (empty or over) and not fades",
        "goes = True",
        "its shares would be down until its ordinal is back",
        (f"{_ROLLS}test_a_rollout_replaces_each_pod_once_its_shares_are_served_elsewhere",),
    ),
    Mutant(
        "a rollout goes on while a new pod is not Ready",
        _ROLLOUT,
        "elif not known.serving and not _is_old(pod, stateful_set):",
        "elif False:",
        "a broken image would take one pod after the other",
        (f"{_ROLLS}test_a_rollout_whose_first_new_pod_does_not_get_ready_stops_and_is_told",),
    ),
    Mutant(
        "a rollout replaces pods whose StatefulSet does so itself",
        _ROLLOUT,
        "if stateful_set.updates_from is not None:",
        "if False:",
        "two controllers would take pods down at once",
        (f"{_ROLLS}test_a_statefulset_that_is_not_on_delete_is_left_alone_and_told",),
    ),
    Mutant(
        "a rollout marks a pod before the pool has room",
        "extender/service/pools/rollouts.py",
        "if plan is None or plan.wanted <= replicas:",
        "if True:",
        "the time to make a new pod would count against the deadline of the hand-over",
        (f"{_ROLLS}test_a_pool_without_room_grows_by_the_surge_before_a_pod_is_marked",),
    ),
    Mutant(
        "a rollout without surge grows its pool",
        _ROLLOUT,
        "and not adapter_pool.rollout.surge",
        "and False",
        "a person has said that there is no machine for a surge",
        (f"{_ROLLS}test_without_surge_a_pool_without_room_does_not_grow_and_is_told",),
    ),
    Mutant(
        "the loops of all buckets share one event",
        "extender/service/pools/rollouts.py",
        "changed = self._changed[bucket] = asyncio.Event()",
        "changed = self._changed[bucket] = next(iter(self._changed.values()), asyncio.Event())",
        "a loop would clear it while another looks, which then misses the change for 10 s",
        (
            "tests/service/pools/test_rollouts_in_buckets.py::"
            "test_a_change_during_a_look_is_not_lost_to_the_loop_of_another_bucket",
        ),
    ),
    Mutant(
        "a rollout does not wait for an eviction",
        "extender/engine/scaling/unavailable.py",
        "or known.evicted is not None",
        "",
        "voluntary disruptions together would take more than one pod",
        (f"{_ROLLS}test_a_rollout_waits_for_an_eviction_of_another_pod",),
    ),
)

_UNAVAILABLE = "extender/engine/scaling/unavailable.py"
_TURNS = "tests/engine/scaling/test_unavailable.py::"
_SIMULATED = "simulate --seed 4 --seeds 1 --events 60 --profile tests/mutants/max_unavailable.yaml"

MAX_UNAVAILABLE = (
    Mutant(
        "maxUnavailable of the pool limits nothing",
        _UNAVAILABLE,
        "if len(self._names) >= self.most:",
        "if False:",
        "I8: voluntary disruptions together would take more pods than the owner of the pool allows",
        (
            f"{_TURNS}test_evictions_get_their_turns_in_the_order_of_their_first_attempts",
            f"{_STEPS}test_by_default_one_pod_of_a_small_pool_follows_the_other",
            _SIMULATED,
        ),
    ),
    Mutant(
        "maxUnavailable of a vpod limits nothing",
        _UNAVAILABLE,
        "if len(taken) >= most:",
        "if False:",
        "I8: all pods of one vpod could be handed over at the same time",
        (
            f"{_TURNS}test_the_pods_of_one_vpod_have_a_limit_of_their_own",
            f"{_STEPS}test_pods_of_one_vpod_are_not_replaced_side_by_side_if_it_has_a_limit",
        ),
    ),
    Mutant(
        "a pod that has been taken is not counted before the watch shows it",
        _UNAVAILABLE,
        "self._names.add(known.name)",
        "pass",
        "I8: one look would take all pods that wait",
        (
            f"{_TURNS}test_evictions_get_their_turns_in_the_order_of_their_first_attempts",
            f"{_STEPS}test_as_many_as_the_pool_allows_are_handed_over_side_by_side",
        ),
    ),
    Mutant(
        "pods that are not Ready do not count",
        _UNAVAILABLE,
        "if known is None or not known.serving or known.evicted is not None:",
        "if known is not None and known.evicted is not None:",
        "a pod that is replaced would make place for the next before it is back",
        (f"{_TURNS}test_a_pod_that_is_unavailable_for_any_reason_counts",),
    ),
    Mutant(
        "an eviction waits for its turn for ever",
        _UNAVAILABLE,
        "overdue = now_s - eviction.first_s >= TURN_MAX_S and unavailable.may_go_overdue(known)",
        "overdue = False",
        "a pod that does not come back would hold up kubectl drain for ever",
        (f"{_TURNS}test_an_eviction_that_has_waited_for_too_long_gets_its_turn_in_any_case",),
    ),
    Mutant(
        "an eviction that waits is handed over all the same",
        "extender/model/eviction.py",
        "self.turn_s is None and self.reason is not MoveReason.ROLLOUT",
        "False",
        "I8: the webhook alone would decide how many pods go",
        (
            f"{_TURNS}test_a_pod_that_waits_for_its_turn_stays_as_it_is",
            f"{_DRAINS}test_evictions_of_several_pods_wait_for_each_other_and_end_by_themselves",
        ),
    ),
    Mutant(
        "the webhook overwrites the leader's turn",
        _WEBHOOK,
        "except Conflict:",
        "except NotFound:",
        "a turn that is given meanwhile would be lost, or the eviction be allowed",
        (f"{_ANSWERS}test_a_first_attempt_does_not_overwrite_what_another_one_has_led_to",),
    ),
    Mutant(
        "all overdue evictions go at once",
        _UNAVAILABLE,
        "return len(others) < self.most and not self._why_not_for_vpods(known, others)",
        "return True",
        "I8: one pod that does not come back would end the limit for all",
        (
            f"{_TURNS}test_overdue_evictions_go_as_many_at_a_time_as_the_limit_and_pods_that_are_"
            "away_do_not_count",
        ),
    ),
    Mutant(
        "a turn begins when the leader's clock says so",
        _UNAVAILABLE,
        "turn_s = max(now_s, eviction.latest_s)",
        "turn_s = now_s",
        "the webhook would allow the eviction before the shares are handed over",
        (
            f"{_TURNS}test_a_turn_does_not_begin_before_the_last_attempt_of_a_webhook_whose_"
            "clock_is_ahead",
        ),
    ),
    Mutant(
        "an eviction without a leader waits for the longest time",
        "extender/model/eviction.py",
        "if self.waits and self.queued:",
        "if self.waits:",
        "with no leader, an eviction would wait for more than half an hour",
        (f"{_ANSWERS}test_an_eviction_that_waits_for_its_turn_ends_by_itself",),
    ),
    Mutant(
        "a rollout takes more pods than have room elsewhere",
        _ROLLOUT,
        "if left < 0 and (going or chosen):",
        "if False:",
        "their shares would wait for room until the deadline, and then be down",
        (f"{_STEPS}test_only_what_has_room_elsewhere_is_handed_over",),
    ),
    Mutant(
        "overdue evictions go beside a pod that hands the same vpod over",
        _UNAVAILABLE,
        "return len(others) < self.most and not self._why_not_for_vpods(known, others)",
        "return len(others) < self.most",
        "I8: more pods of a vpod leave together than maxUnavailable.perVPod allows",
        (f"{_TURNS}test_half_an_hour_changes_nothing_for_pods_that_hand_the_same_vpod_over",),
    ),
    Mutant(
        "the turn of a pod whose write was not answered counts for nothing",
        "extender/service/pools/evictions.py",
        "return not isinstance(error, (OutcomeUnknown, Conflict))",
        "return True",
        "I8: the rollout takes another pod in the same look",
        (
            "tests/service/pools/test_rollouts.py::"
            "test_a_turn_whose_answer_is_lost_counts_before_the_rollout_takes_a_pod",
        ),
    ),
    Mutant(
        "an eviction of a former pod is one of the pod that is there",
        _WEBHOOK,
        "if _is_about_another(request, pod):",
        "if False:",
        "all that a pod has is moved away, because somebody evicts the one before it",
        (f"{_DRAINS}test_an_eviction_of_a_former_pod_of_the_name_is_left_to_the_api_server",),
    ),
)
