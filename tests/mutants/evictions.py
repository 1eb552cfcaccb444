"""Breaks of evictions that wait for the hand-over, in the webhook and in the service."""

from tests.mutants.mutant import Mutant

_WEBHOOK = "webhook/evictions.py"
_ANSWERS = "tests/webhook/test_evictions.py::"
_DRAINS = "tests/service/placing/test_evictions.py::"

EVICTIONS = (
    Mutant(
        "an eviction waits for nothing",
        _WEBHOOK,
        "return pool.overlaps and serves and bool(pod.ledger)",
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
        "first_s = known.first_s if known is not None else now_s",
        "first_s = now_s",
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
        "and self.adapter_pool.overlaps",
        "",
        "only the hand-over makes a drain for an eviction safe",
        (f"{_DRAINS}test_a_pool_without_the_mode_ignores_the_annotation",),
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
