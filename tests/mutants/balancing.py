"""Breaks of balancing load."""

from tests.mutants.mutant import Mutant

_LOAD = "extender/engine/rebalance/load.py"
_BALANCE = "extender/engine/rebalance/balance.py"
_EVICTOR = "extender/service/pools/evictor.py"
_REPORTS = "extender/service/pools/load_reports.py"
_PROMETHEUS = "extender/service/pools/prometheus.py"
_POLLING = "extender/service/pools/load_polling.py"
_TEST_PROMETHEUS = "tests/service/pools/test_prometheus.py::"
_TEST_POLLING = "tests/service/pools/test_load_polling.py::"
_TEST_LOAD = "tests/engine/rebalance/test_load.py::"
_TEST = "tests/engine/rebalance/test_balance.py::"
_TEST_SUMMARY = "tests/service/pools/test_load_summary.py::"
_TEST_TURNS = "tests/service/pools/test_pool_moves.py::"
_SERVICE = "tests/service/test_load.py::"

BALANCING = (
    Mutant(
        "policy plans moves on top of others of the same vpod",
        "extender/engine/rebalance/moves.py",
        "or any(self._follows(found, earlier) for earlier in made)",
        "or False",
        "a move that fails makes another one of its plan a change for the worse (seed 621)",
        (
            "tests/engine/rebalance/test_rebalance_properties.py::"
            "test_each_policy_move_of_a_vpod_is_an_improvement_even_if_the_others_are_not_made",
        ),
    ),
    Mutant(
        "room is searched for where all free slots together are too few",
        "extender/engine/rebalance/make_room.py",
        "if self._room.free_slots() < vpod.weight:",
        "if False:",
        "a plan has no steps left for a vpod that moves would place",
        (
            "tests/engine/rebalance/test_make_room.py::"
            "test_what_all_free_slots_together_could_not_hold_costs_no_steps",
        ),
    ),
    Mutant(
        "a search leaves out pods of which enough could leave",
        "extender/engine/rebalance/make_room.py",
        "if self._movers.heaviest(pod, count, widest) >= missing:",
        "if self._movers.heaviest(pod, count - 1, widest) >= missing:",
        "vreplicas wait that moves would place",
        ("tests/engine/rebalance/test_make_room.py::test_what_is_left_out_would_have_failed",),
    ),
    Mutant(
        "vreplicas move for what a pod on its way has room for",
        _EVICTOR,
        "return waited if awaiting else waiting",
        "return waiting",
        "each growth of a pool moves vreplicas, too",
        (
            "tests/service/test_make_room.py::"
            "test_nothing_moves_for_a_vreplica_that_a_pod_on_its_way_has_room_for",
        ),
    ),
    Mutant(
        "each plan of a look tries the same waiting vpods",
        "extender/service/pools/pool_moves.py",
        "while self._tried < len(waiting):",
        "for _ in waiting:",
        "seconds of a core for a pool of many vpods of which a few wait",
        (f"{_TEST_TURNS}test_one_look_tries_each_of_them_once_in_however_many_plans",),
    ),
    Mutant(
        "a plan without time for all that waits begins ten further than the last one",
        "extender/service/pools/pool_moves.py",
        "self._next_waiting += 1",
        "self._next_waiting += 10",
        "if five or ten wait, it is always the turn of the same ones",
        (f"{_TEST_TURNS}test_each_waiting_vpod_is_tried_once_in_a_round",),
    ),
    Mutant(
        "a search for room is begun with what steps are left",
        "extender/engine/rebalance/moves.py",
        "        if not plan.may_search:\n            break\n",
        "",
        "what comes later in a plan counts as tried, with no time to find a way",
        (
            f"{_TEST_TURNS}test_what_one_move_would_place_has_its_turn_beside_heavier_ones_for_which_there_is_no_way",
        ),
    ),
    Mutant(
        "more than 9 % move for load",
        _BALANCE,
        "MOVED_MAX: Final = 0.09",
        "MOVED_MAX: Final = 0.6",
        "I4: one bad report would move most of a pool",
        ("simulate --seed 37 --seeds 1 --events 120 --profile tests/mutants/load.yaml",),
    ),
    Mutant(
        "there is no dead band",
        _BALANCE,
        "hot = (goal.target + DEAD_BAND) * self._mean",
        "hot = goal.target * self._mean",
        "noise moves vreplicas to and fro",
        (f"{_TEST}TestWhatMoves::test_nothing_while_the_hottest_pod_is_within_the_dead_band",),
    ),
    Mutant(
        "the coldest pods of all are tried, and not those of each zone",
        _BALANCE,
        'return node.zone if node is not None else ""',
        'return ""',
        "under a zone rule nothing moves if they are in other zones",
        (f"{_TEST}TestProfiles::test_cold_pods_of_another_zone_do_not_hide_those_of_its_own",),
    ),
    Mutant(
        "a load is absurd by the median alone",
        _LOAD,
        "return max(likely, DWARFS * smaller)",
        "return likely",
        "the busiest tenants of a large pool would count as the mean",
        (f"{_TEST_LOAD}test_a_few_tenants_with_much_of_the_load_are_not_absurd",),
    ),
    Mutant(
        "a vpod ends on fewer pods",
        _BALANCE,
        "if here == 1 and placed.get(target.name, 0):",
        "if not here:",
        "minPodsPerVPod: what was spread over pods would be lost with one of them",
        (f"{_TEST}TestWhatMoves::test_a_vpod_stands_on_no_fewer_pods_afterwards",),
    ),
    Mutant(
        "load moves to a pod that serves nobody",
        _BALANCE,
        "if would_end_service(pod, target) or not self._profile_agrees(vpod, pod, to):",
        "if not self._profile_agrees(vpod, pod, to):",
        "a move that can wait ends service",
        (f"{_TEST}TestWhatMoves::test_nothing_goes_to_a_pod_that_is_not_ready",),
    ),
    Mutant(
        "guesses move vreplicas",
        _BALANCE,
        "if not goal.view.is_enough or self._mean <= 0:",
        "if self._mean <= 0:",
        "a new leader would balance by the reports of a few pods",
        (f"{_TEST}TestWhatMoves::test_while_half_of_the_vreplicas_are_silent_nothing_moves",),
    ),
    Mutant(
        "absurd reports count",
        _LOAD,
        "return Refused.ABSURD if rate > min(self._absurd_from, LOAD_MAX) else None",
        "return None",
        "one broken adapter would have its pod emptied",
        (f"{_TEST_LOAD}test_a_load_far_over_the_median_is_absurd_even_if_it_was_the_first_report",),
    ),
    Mutant(
        "each period may move as much for load as all moves",
        _EVICTOR,
        "replace(load, budget=load.budget - spent, begun=spent > 0)",
        "replace(load, begun=spent > 0)",
        "looks at once repeat the 9 % of a period",
        (f"{_SERVICE}test_at_most_nine_percent_of_the_vreplicas_move_in_a_period",),
    ),
    Mutant(
        "reports outlive what the pool asks for",
        _REPORTS,
        "self.drop(state.key)\n            state.load = NO_LOADS",
        "state.load = NO_LOADS",
        "memory of pools that balance no more",
        (f"{_SERVICE}test_a_pool_that_no_longer_balances_forgets_what_was_reported",),
    ),
    Mutant(
        "the noise of a hot pod is a part of the mean",
        _REPORTS,
        "> NOISE * last.max_to_mean",
        "> NOISE",
        "the status of a pool with a pod far above the mean is written every few minutes for ever",
        (f"{_TEST_SUMMARY}test_noise_changes_nothing",),
    ),
    Mutant(
        "a token goes wherever a server sends it",
        _PROMETHEUS,
        "headers=headers, allow_redirects=False",
        "headers=headers, allow_redirects=True",
        "a redirect makes the service ask any address, as often as it likes",
        (f"{_TEST_PROMETHEUS}test_no_redirect_is_followed",),
    ),
    Mutant(
        "an answer of any size is read",
        _PROMETHEUS,
        "if size > ANSWER_BYTES_MAX:",
        "if size < 0:",
        "a broken server fills the leader's memory",
        (f"{_TEST_PROMETHEUS}test_an_answer_over_the_limit_of_bytes_is_not_read_to_its_end",),
    ),
    Mutant(
        "callers report beside Prometheus",
        "extender/service/http/load.py",
        "if pool.load_source:",
        "if False:",
        "two sources of one load, each with its own unit",
        (
            f"{_TEST_POLLING}test_a_pool_that_no_longer_names_a_source_stops_asking_and_takes_"
            "reports",
        ),
    ),
    Mutant(
        "an answer about an older spec counts",
        _POLLING,
        "or _asked(now) != _asked(pool):",
        "or False:",
        "loads of the metric, or of the StatefulSet, that the pool had before",
        (f"{_TEST_POLLING}test_an_answer_that_comes_after_the_pool_has_changed_is_dropped",),
    ),
    Mutant(
        "policy moves by load",
        "extender/engine/policy/profile.py",
        "if len(moving) == len(self.scores):",
        "if True:",
        "each change of loads moves vreplicas, without a dead band",
        (
            "tests/engine/policy/test_least_load.py::"
            "test_policy_moves_nothing_to_a_pod_with_less_load",
        ),
    ),
    Mutant(
        "a batch piles up on the coldest pod",
        "extender/engine/pods/pod_loads.py",
        "self.loads.get(ordinal, 0.0) + more * self.per_slot",
        "self.loads.get(ordinal, 0.0) + 0.0 * more",
        "what has just been placed has no load yet",
        (
            "tests/engine/policy/test_least_load.py::"
            "test_a_batch_does_not_all_go_to_the_coldest_pod",
        ),
    ),
    Mutant(
        "policy swaps where the profile compares pods, too",
        "extender/engine/rebalance/moves.py",
        "                and not pool.profile.compares_pods\n",
        "",
        "one swap follows the other for ever",
        (
            "tests/engine/rebalance/test_swaps.py::"
            "test_nothing_makes_way_where_the_profile_compares_pods",
        ),
    ),
)
