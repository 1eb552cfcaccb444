"""Breaks of tenancy: who gets how many slots of a pool."""

from tests.mutants.mutant import Mutant

_SHARES = "extender/engine/state/fair_shares.py"
_TENANCY = "extender/engine/state/tenancy.py"
_POOL = "extender/engine/state/pool_state.py"
_OF_SHARES = "tests/engine/state/test_fair_shares.py::"
_OF_TENANCY = "tests/engine/state/test_tenancy.py::"

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
        _TENANCY,
        "vpod.key: min(used[vpod.key], tenant.wanted[vpod.key].now) for vpod in ordered",
        "vpod.key: 0 for vpod in ordered",
        "an older vpod takes what a younger one has",
        (f"{_OF_TENANCY}test_what_is_used_stays_admitted_and_the_oldest_comes_next",),
    ),
    Mutant(
        "what a smaller vpod still publishes is free at once",
        _TENANCY,
        "tenant.surplus += max(0, wanted.used - wanted.now) * weight",
        "tenant.surplus += 0",
        "a tenant has more than its limit for a while",
        (f"{_OF_TENANCY}test_what_a_smaller_vpod_still_publishes_is_not_free_yet",),
    ),
    Mutant(
        "the pool grows for what a limit does not allow",
        _TENANCY,
        "within_limit = min(max(0, missing), room // vpod.weight)",
        "within_limit = max(0, missing)",
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
        "a limit is that of a quota which is younger than another one",
        "extender/model/tenancy.py",
        "key=lambda quota: quota.precedence, reverse=True",
        "key=lambda quota: quota.precedence",
        "who may create quotas raises a limit with a second one",
        (f"{_OF_TENANCY}test_of_two_quotas_for_a_tenant_the_older_one_counts",),
    ),
)
