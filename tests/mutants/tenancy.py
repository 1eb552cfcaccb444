"""Breaks of tenancy: who gets how many slots of a pool."""

from tests.mutants.mutant import Mutant

_SHARES = "extender/engine/state/fair_shares.py"
_TENANCY = "extender/engine/state/tenancy.py"
_TENANT = "extender/engine/state/tenant.py"
_ADMISSION = "extender/engine/state/admission.py"
_PLAN = "extender/engine/placing/plan.py"
_PATIENCE = "extender/engine/state/patience.py"
_BUDGET = "extender/engine/state/preemption_budget.py"
_POOL = "extender/engine/state/pool_state.py"
_OF_GANGS = "tests/engine/placing/test_all_or_nothing.py::"
_OF_LIMITS = "tests/engine/placing/test_max_per_pod.py::"
_OF_ADMITTED_GANGS = "tests/engine/state/test_gangs.py::"
_OF_SHARES = "tests/engine/state/test_fair_shares.py::"
_OF_TENANCY = "tests/engine/state/test_tenancy.py::"
_OF_PREEMPTION = "tests/engine/state/test_preemption.py::"

TENANCY = (
    Mutant(
        "a guarantee counts for nothing while others want the slots",
        _SHARES,
        "[min(one.guarantee, most) for one, most in zip(demands, asked, strict=True)]",
        "[0 for one, most in zip(demands, asked, strict=True)]",
        "a guaranteed tenant gets what everybody gets",
        (f"{_OF_SHARES}test_a_guarantee_comes_before_shares",),
    ),
    Mutant(
        "what a modest tenant leaves is given to nobody",
        _SHARES,
        "left, weights, satisfied = left - more, weights - one.weight, satisfied + 1",
        "left, satisfied = left - more, satisfied + 1",
        "slots stay free while others wait for them",
        (f"{_OF_SHARES}test_what_a_modest_tenant_leaves_is_shared_by_the_others",),
    ),
    Mutant(
        "what a vpod uses does not stay admitted",
        _ADMISSION,
        "[min(have, one.now) for have, one in zip(used, vpods, strict=True)]",
        "[0 for have, one in zip(used, vpods, strict=True)]",
        "an older vpod takes what a younger one has",
        (f"{_OF_TENANCY}test_what_is_used_stays_admitted_and_the_oldest_comes_next",),
    ),
    Mutant(
        "what a smaller vpod still publishes is free at once",
        _TENANT,
        "self.surplus += max(0, wanted.used - wanted.now) * weight",
        "self.surplus += 0",
        "a tenant has more than its limit for a while",
        (f"{_OF_TENANCY}test_what_a_smaller_vpod_still_publishes_is_not_free_yet",),
    ),
    Mutant(
        "the pool grows for what a limit does not allow",
        _TENANCY,
        "within_limit = min(max(0, wanted.raised - admitted), room // wanted.weight)",
        "within_limit = max(0, wanted.raised - admitted)",
        "one vpod of two billion vreplicas grows a pool to its maxPods",
        (f"{_OF_TENANCY}test_the_pool_grows_for_what_a_limit_allows_and_no_further",),
    ),
    Mutant(
        "nobody is told that more of its vpod is admitted",
        _POOL,
        "self.on_admitted(self.key, key)",
        "pass",
        "it waits although it need not, until something else changes",
        (f"{_OF_TENANCY}test_others_are_told_if_more_of_them_is_admitted",),
    ),
    Mutant(
        "a priority changes nothing",
        _TENANT,
        "return (-vpod.priority, vpod.created_at or _LAST, vpod.key)",
        "return (0, vpod.created_at or _LAST, vpod.key)",
        "the oldest vpods come first, however unimportant they are",
        (
            f"{_OF_PREEMPTION}test_it_takes_from_the_least_important_first_and_among_equals_from_the_youngest",
        ),
    ),
    Mutant(
        "a vpod takes slots from those of its own priority",
        _ADMISSION,
        "key=lambda index: vpods[index].priority",
        "key=lambda index: index",
        "equals take vreplicas from each other for ever",
        (f"{_OF_PREEMPTION}test_nothing_is_taken_from_equals",),
    ),
    Mutant(
        "slots are taken although enough become free in any case",
        _ADMISSION,
        "soon = left + (leaving or 0)",
        "soon = left",
        "a vpod is preempted for room that somebody else is leaving",
        (f"{_OF_PREEMPTION}test_nothing_is_taken_for_what_leaves_in_any_case",),
    ),
    Mutant(
        "who never preempts takes slots from others",
        _ADMISSION,
        "takes = leaving is not None and one.preempts",
        "takes = leaving is not None",
        "preemptionPolicy: Never means nothing",
        (f"{_OF_PREEMPTION}test_who_never_preempts_is_first_for_what_is_free_and_takes_nothing",),
    ),
    Mutant(
        "a pool that preempts is not patient",
        _PATIENCE,
        "if now - since >= patience_s",
        "if now >= since",
        "vpods lose their vreplicas although a pod for all is on its way",
        (
            f"{_OF_PREEMPTION}test_a_pool_that_may_grow_waits_for_pods_and_then_counts_those_that_there_are",
        ),
    ),
    Mutant(
        "what stands on a pod that is away counts as missing",
        _POOL,
        "[pod.capacity if pod.schedulable else pod.written for pod in self.pods.values()]",
        "[pod.capacity if pod.schedulable else 0 for pod in self.pods.values()]",
        "others lose vreplicas while a pod of important ones restarts",
        (f"{_OF_PREEMPTION}test_what_stands_on_a_pod_that_is_away_is_not_taken_from_others",),
    ),
    Mutant(
        "what is reserved on a pod that is away counts as there",
        _POOL,
        "[pod.capacity if pod.schedulable else pod.written for pod in self.pods.values()]",
        "[pod.capacity if pod.schedulable else pod.held for pod in self.pods.values()]",
        "a leader decides without end and without a pause",
        (f"{_OF_PREEMPTION}test_a_reservation_on_a_pod_that_is_away_changes_nothing_for_others",),
    ),
    Mutant(
        "a pod gets more of a vpod than its maxPerPod",
        "extender/model/objects.py",
        "return min(free, max(0, self.max_per_pod - placed) * self.weight)",
        "return free",
        "the loss of one pod takes most of a vpod",
        (f"{_OF_LIMITS}test_under_each_profile_a_pod_gets_no_more_than_the_limit",),
    ),
    Mutant(
        "a pool is sized without maxPerPod",
        "extender/engine/scaling/packing.py",
        "left = max(0, most - there.get(ordinal, 0)) * weight",
        "left = free[ordinal]",
        "vreplicas wait although the pool could grow for them",
        (
            f"{_OF_LIMITS}test_a_pool_has_as_many_pods_as_the_limit_needs",
            f"{_OF_LIMITS}test_pods_that_the_limit_needs_are_not_closed_though_fewer_have_the_slots",
        ),
    ),
    Mutant(
        "a bind gives a pod more of a vpod than its maxPerPod",
        "extender/node/bind_ledger.py",
        "if vpod.per_vreplica or vpod.max_per_pod or pool.comes_as_a_whole(vpod):",
        "if vpod.per_vreplica or pool.comes_as_a_whole(vpod):",
        "the loss of one pod takes most of a vpod",
        (f"{_OF_LIMITS}test_a_pod_that_is_bound_does_not_take_more_than_the_limit",),
    ),
    Mutant(
        "a pool shrinks without maxPerPod",
        "extender/engine/scaling/scale_down.py",
        "most = vpods[key].max_per_pod if key in vpods else 0",
        "most = 0",
        "pods are closed, and cannot be emptied",
        (f"{_OF_LIMITS}test_pods_that_hold_more_than_the_limit_lets_others_take_are_not_closed",),
    ),
    Mutant(
        "slots that a vpod cannot use are taken for it",
        "extender/engine/state/tenancy.py",
        "if vpod.max_per_pod and self._most_pods is not None:",
        "if False:",
        "others lose vreplicas, and the slots stay free",
        (f"{_OF_PREEMPTION}test_nothing_is_taken_for_vreplicas_beyond_max_per_pod",),
    ),
    Mutant(
        "what makes way goes to a pod that has all of it that it may have",
        "extender/engine/rebalance/make_room.py",
        "if vpod.max_per_pod and there >= vpod.max_per_pod:",
        "if False:",
        "others are moved for nothing",
        (f"{_OF_LIMITS}test_what_makes_way_does_not_go_to_a_pod_that_has_the_limit_of_it",),
    ),
    Mutant(
        "a vpod is placed with too few vreplicas",
        _PLAN,
        "if not 0 < have < self.vpod.least:",
        "if True:",
        "two vpods hold what the other one needs, and neither can work",
        (f"{_OF_GANGS}test_of_two_that_wait_for_each_other_one_is_placed",),
    ),
    Mutant(
        "some of what a vpod needs together is published while a ledger is missing",
        "extender/service/placing/committer.py",
        "if not published and sum(target.values()) < vpod.least:",
        "if False:",
        "an adapter begins with a part that is of no use",
        (
            "tests/service/placing/test_committer.py::"
            "test_what_a_vpod_needs_together_is_published_together",
        ),
    ),
    Mutant(
        "a part of what a vpod needs together is admitted",
        _ADMISSION,
        "[index for index, one in enumerate(vpods) if admitted[index] < one.least]",
        "[]",
        "slots are kept for a vpod that cannot use them",
        (f"{_OF_ADMITTED_GANGS}test_it_gets_as_many_as_it_needs_together_or_none",),
    ),
    Mutant(
        "others get the slots for which a more important vpod waits",
        _ADMISSION,
        "if waits or 0 < left < too_few:",
        "if waits:",
        "they lose them again a moment later",
        (f"{_OF_ADMITTED_GANGS}test_what_it_waits_for_until_others_have_left_goes_to_nobody_else",),
    ),
    Mutant(
        "a pool grows for a vpod that its maxPods cannot hold",
        "extender/engine/scaling/size.py",
        "gangs = most < unlimited and not pool.is_sized_by_others",
        "gangs = False",
        "empty pods for as long as it waits",
        (f"{_OF_GANGS}TestSize::test_a_pool_grows_for_it_unless_it_may_not_grow_far_enough",),
    ),
    Mutant(
        "a client gives its VPod a priority of its own",
        "webhook/priority.py",
        "elif key not in wanted and key in spec:",
        "elif False:",
        "every tenant is the most important one",
        ("tests/webhook/test_priority.py::test_nobody_gives_a_vpod_a_priority_of_its_own",),
    ),
    Mutant(
        "a limit is that of a quota which is younger than another one",
        "extender/model/tenancy.py",
        "key=lambda quota: quota.precedence, reverse=True",
        "key=lambda quota: quota.precedence",
        "who may create quotas raises a limit with a second one",
        (f"{_OF_TENANCY}test_of_two_quotas_for_a_tenant_the_older_one_counts",),
    ),
    Mutant(
        "slots that are taken count for nothing",
        _BUDGET,
        "self._left -= max(0, min(self._left, taken - self._outstanding(keys, wanted, used)))",
        "pass",
        "important work empties a pool at once although slotsPerPeriod limits it",
        (f"{_OF_PREEMPTION}test_so_many_slots_are_taken_in_a_period_and_no_more",),
    ),
    Mutant(
        "a slot counts again until its vpod has given it back",
        _BUDGET,
        "taken - self._outstanding(keys, wanted, used)",
        "taken",
        "less is taken in a period than slotsPerPeriod allows",
        (f"{_OF_PREEMPTION}test_what_is_not_given_back_yet_is_not_counted_twice",),
    ),
    Mutant(
        "what is kept for a heavy vreplica is lent to others",
        _TENANCY,
        "left = slots - sum([one.slots_admitted + one.kept for one in tenants])",
        "left = slots - sum([one.slots_admitted for one in tenants])",
        "a heavy vreplica never gets the slots that are taken for it in parts",
        (f"{_OF_PREEMPTION}test_what_is_taken_in_parts_for_a_heavy_vreplica_is_kept_for_it",),
    ),
    Mutant(
        "what is left of one taking is kept for nobody",
        _ADMISSION,
        "if waits or 0 < left < too_few:",
        "if 0 < left < too_few:",
        "the vpod that gave slots gets them back, and gives them again, for ever",
        (f"{_OF_PREEMPTION}test_what_is_taken_in_parts_for_a_heavy_vreplica_is_kept_for_it",),
    ),
)
