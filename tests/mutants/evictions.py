"""Breaks of evictions that wait for the hand-over, in the webhook and in the service."""

from tests.mutants.mutant import Mutant

_WEBHOOK = "webhook/evictions.py"
_ANSWERS = "tests/webhook/test_evictions.py::"
_DRAINS = "tests/service/placing/test_evictions.py::"

EVICTIONS = (
    Mutant(
        "an eviction waits for nothing",
        _WEBHOOK,
        "return pool.hands_over and serves and bool(pod.ledger)",
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
        "elif now_s - known.first_s > deadline_s(pool):",
        "elif False:",
        "an adapter that never lets go would keep a node from being drained",
        (f"{_ANSWERS}test_an_eviction_is_allowed_once_its_deadline_has_passed",),
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
        "if not is_dry_run(request):",
        "if True:",
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
        "extender/engine/state/pool_pods.py",
        "and self.adapter_pool.hands_over",
        "",
        "only the hand-over makes a drain for an eviction safe",
        (f"{_DRAINS}test_a_pool_without_the_mode_ignores_the_annotation",),
    ),
    Mutant(
        "a late adapter of an evicted pod is tried again after the cool-down",
        "extender/service/placing/handovers.py",
        "if known.reason in {MoveReason.EVICTED, MoveReason.ROLLOUT}:",
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
        "await give_up_evictions(self._caches, self._fenced, bucket, self._now())",
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
        "if had is None or had.state is ShareState.PREPARE or comes_back:",
        "if had is None or had.state is ShareState.PREPARE:",
        "its vpod would never leave the pods that are drained (seed 91000030)",
        ("tests/engine/placing/test_handover.py::test_what_a_pod_is_told",),
    ),
    Mutant(
        "a rollout evicts a pod that still has shares",
        _ROLLOUT,
        "if empty or overdue:",
        "if True:",
        "its shares would be down until its ordinal is back",
        (f"{_ROLLS}test_a_rollout_replaces_each_pod_once_its_shares_are_served_elsewhere",),
    ),
    Mutant(
        "a rollout goes on while a new pod is not Ready",
        _ROLLOUT,
        "if not known.serving and not _is_old(pod, stateful_set):",
        "if False:",
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
        _ROLLOUT,
        "if known.evicted is not None:",
        "if False:",
        "planned events together would take more than one pod",
        (f"{_ROLLS}test_a_rollout_waits_for_an_eviction_of_another_pod",),
    ),
)
