"""Breaks of binding: the binder, what a pod carries, and whether its ordinal's past is known."""

from tests.mutants.mutant import Mutant

_BINDER = "extender/service/binding/binder.py"
_POD_BINDER = "extender/service/binding/pod_binder.py"
_SUCCESSION = "extender/engine/state/ordinal_history.py"
_PREDECESSORS = "extender/service/binding/ordinal_history_reader.py"
_CARRY = "extender/node/bind_ledger.py"
_TEST = "tests/service/binding/test_binder.py::"
_FORGED = "tests/service/binding/test_bind_forged.py::"
_STANDING = "tests/node/test_bind_ledger.py::TestStanding::"
_PLANNED = "tests/node/test_bind_ledger.py::TestPlanned::"
_RACES = "tests/service/binding/test_binder_races.py::"
_PAST = "tests/engine/state/test_ordinal_history.py::"
_WAITS = "tests/service/binding/test_ordinal_history_reader.py::"

BINDING = (
    Mutant(
        "bind without validating again",
        _BINDER,
        "problems = filter_nodes(state, pod, (node,), state.nodes.get).refusal(node)\n        "
        "problems += self._cordon(pod, node)",
        "problems: ConflictReasons = ()",
        "what filter has seen may not hold any more when bind comes",
        (f"{_TEST}test_a_bind_that_must_not_be_is_refused_and_leaves_nothing",),
    ),
    Mutant(
        "bind on a cordoned node",
        _BINDER,
        "problems += self._cordon(pod, node)\n",
        "",
        "a bind that comes late, or from nowhere, must not go around a cordon",
        (f"{_FORGED}test_a_forged_bind_binds_nothing[a_cordoned_node seen]",),
    ),
    Mutant(
        "bind does not wait for the watch",
        _BINDER,
        "            await self._see(assumed, seen)\n",
        "",
        "as the volume binder waits for its claims; a pod that is gone is no success",
        (
            "tests/conformance/test_volume_binder_rows.py::test_bind_succeeds_after_time",
            "tests/conformance/test_volume_binder_rows.py"
            "::test_bind_fails_once_the_watch_shows_that_the_pod_is_gone",
        ),
    ),
    Mutant(
        "ledger changed since filter is not noticed",
        _BINDER,
        "if found is not None and found.ledger_text != pod.ledger_text:",
        "if decision is None:",
        "filter has decided on placements that are not the pod's any more",
        (f"{_TEST}test_a_ledger_edited_between_filter_and_bind_is_refused",),
    ),
    Mutant(
        "Binding without preconditions",
        _BINDER,
        "uid=pod.uid,\n            resource_version=pod.resource_version,\n            annotations",
        "annotations",
        "the API server is what makes every replica's bind safe: by UID and version",
        (
            f"{_TEST}test_a_pod_that_changes_under_every_attempt_is_refused_in_the_end",
            "simulate --seed 1 --seeds 1 --events 60",
        ),
    ),
    Mutant(
        "pending vreplicas given by any replica",
        _BINDER,
        "with_added=self._leads(pod.pool) and adds_at_bind(pool.profile)",
        "with_added=adds_at_bind(pool.profile)",
        "two replicas that bind would give away the same pending vreplicas",
        (f"{_TEST}test_only_the_leader_gives_a_binding_pod_what_is_still_pending",),
    ),
    Mutant(
        "added vreplicas are not reserved",
        _BINDER,
        "for key in bind_ledger.added:",
        "for key in dict[str, int]():",
        "a second bind, or the placer, would give the same vreplicas to another pod",
        (
            f"{_RACES}test_a_pod_that_changes_while_it_is_bound_leaves_what_was_planned_for_it_to_nobody_else",
        ),
    ),
    Mutant(
        "a refused Binding is not undone",
        _POD_BINDER,
        "except BaseException:\n                self._binder.revert(assumed)\n                "
        "raise",
        "except BaseException:\n                raise",
        "lost revert: the pod stays assumed and its vreplicas reserved",
        (f"{_TEST}test_a_binding_that_the_api_server_refuses_is_undone_exactly",),
    ),
    Mutant(
        "revert leaves the reservations",
        _BINDER,
        "for key in assumed.bind_ledger.added:\n            self._caches.state.release",
        "for key in ():\n            self._caches.state.release",
        "lost revert: slots promised to nobody",
        (f"{_TEST}test_a_binding_that_the_api_server_refuses_is_undone_exactly",),
    ),
    Mutant(
        "revert leaves the pod assumed",
        _BINDER,
        "if known is not None and known.assumed and known.uid == assumed.pod.uid:",
        "if known is None:",
        "lost revert: the node seems to carry a pod that is not there",
        (f"{_TEST}test_a_binding_that_the_api_server_refuses_is_undone_exactly",),
    ),
    Mutant(
        "a lost answer counts as bound",
        _BINDER,
        "if not bound:",
        "if bound is None:",
        "a Binding that never arrived would be reported as done",
        (f"{_TEST}test_a_binding_that_was_lost_is_sent_again",),
    ),
    Mutant(
        "a Binding in doubt never expires",
        _POD_BINDER,
        "call_later(RESERVATION_TTL_S, self._end_doubt, uid)",
        "call_later(1e9, self._end_doubt, uid)",
        "I5: what no write has confirmed is given up after 30 s",
        (f"{_TEST}test_a_binding_that_nobody_knows_of_is_given_up_after_30_s",),
    ),
    Mutant(
        "a Binding in doubt is undone at once",
        _POD_BINDER,
        "self._doubt(assumed)\n                raise",
        "self._binder.revert(assumed)\n                raise",
        "it may have arrived: its vreplicas would be given away twice",
        (
            f"{_TEST}test_a_bind_past_its_deadline_gives_its_vreplicas_to_nobody_else_until_it_expires",
        ),
    ),
    Mutant(
        "another pod of the same name is bound",
        _POD_BINDER,
        "if pod.uid != uid:\n            raise",
        "if not uid:\n            raise",
        "a recreated pod is another one: everything goes by UID",
        (f"{_FORGED}test_a_forged_bind_binds_nothing[another_pods_uid seen]",),
    ),
    Mutant(
        "a pod that is bound elsewhere counts as bound here",
        _POD_BINDER,
        "if pod.node and pod.node != node:",
        "if pod.node and not node:",
        "kube-scheduler would believe a node that is not the pod's",
        (f"{_TEST}test_a_bind_that_must_not_be_is_refused_and_leaves_nothing",),
    ),
    Mutant(
        "another scheduler's pod is bound",
        _POD_BINDER,
        "if not pod.node and pod.scheduler_name not in self.scheduler_names:",
        "if not pod.scheduler_name:",
        "whoever reaches the socket could place pods that are not ours",
        (f"{_FORGED}test_a_forged_bind_binds_nothing[another_schedulers_pod seen]",),
    ),
    Mutant(
        "a pod that the cache has on its node is bound",
        _POD_BINDER,
        "pod.uid != uid or pod.node or assumed",
        "pod.uid != uid or assumed",
        "after a restore of etcd it stays Pending forever (seed 108015178)",
        (f"{_RACES}test_a_pod_that_is_bound_by_the_cache_alone_is_not_taken_for_bound",),
    ),
    Mutant(
        "binds of one pod run side by side",
        _POD_BINDER,
        "async with flight.lock:",
        "if flight.users:",
        "a repeated bind would be written twice",
        (f"{_RACES}test_a_bind_that_is_asked_again_while_it_is_written_is_not_written_twice",),
    ),
    Mutant(
        "the pod's own annotation is bound",
        _BINDER,
        "PLACEMENTS_ANNOTATION: assumed.bind_ledger.text,",
        'PLACEMENTS_ANNOTATION: pod.ledger_text or "{}",',
        "what a pod brings along is anybody's text",
        (f"{_FORGED}test_the_ledger_that_a_pod_brings_along_is_not_the_one_it_is_bound_with",),
    ),
    Mutant(
        "slots are not stamped",
        _BINDER,
        "SLOTS_ANNOTATION: str(assumed.slots)",
        "**{}",
        "a pod that slipped past the webhook would have no capacity of its own",
        (f"{_TEST}test_a_bind_of_an_unstamped_pod_stamps_its_slots",),
    ),
    Mutant(
        "an ordinal's past is not asked for",
        _POD_BINDER,
        "past_known = await self._knows_past(pod)",
        "past_known = True",
        "a status on its way would be uncovered by the next pod (I2)",
        (f"{_RACES}test_a_pod_whose_past_is_not_known_is_not_bound",),
    ),
    Mutant(
        "the gap of succession is closed at once",
        _SUCCESSION,
        "return max(0.0, self._since + HOLD_S - self._clock())",
        "return 0.0",
        "a status that is still on its way relies on a pod that nobody here has seen",
        (
            f"{_PAST}test_after_a_list_nothing_can_close_the_gap_before_what_was_on_its_way_has_arrived",
        ),
    ),
    Mutant(
        "a list opens no gap",
        _SUCCESSION,
        "{}, set(), False, self._clock()",
        "{}, set(), closed, self._clock()",
        "between a list and what the watch told before, pods may have come and gone",
        (f"{_PAST}test_a_new_list_opens_the_gap_again",),
    ),
    Mutant(
        "vpods listed for an earlier gap close a later one",
        _SUCCESSION,
        "if since != self._since:",
        "if since > self._since:",
        "stale read: the list was begun before the gap",
        (f"{_PAST}test_what_was_listed_for_an_earlier_gap_does_not_close_a_later_one",),
    ),
    Mutant(
        "a ledger from before a gap is brought back",
        _SUCCESSION,
        "return outdated\n",
        "return frozenset()\n",
        "stale read: the ordinal has had another pod since",
        (
            f"{_PAST}TestWhatToForget::test_the_last_ledger_of_an_ordinal_whose_pod_ended_in_the_gap",
        ),
    ),
    Mutant(
        "what a lagging status claims comes before what the last pod held",
        "extender/node/bind_ledger.py",
        "in_order = covered, held, published, placements_from_former_pool",
        "in_order = published, placements_from_former_pool, held",
        "stale read: what stands is cut to make room for what has left",
        (
            "tests/node/test_bind_ledger.py::TestStanding::"
            "test_a_status_that_the_last_ledger_never_covered_takes_no_room_of_one_that_it_did",
        ),
    ),
    Mutant(
        "another incarnation's past counts",
        _SUCCESSION,
        "before.get(pod.key) == pod.uid and",
        "pod.key in before and",
        "the pod in between may have carried something",
        (f"{_PAST}test_a_pod_that_came_within_the_gap_is_not_known",),
    ),
    Mutant(
        "a pod that the watch has not told of is known",
        _SUCCESSION,
        "return self.is_seen(pod) and (self._closed",
        "return (self._closed",
        "the end of the pod before it has not been seen yet",
        (f"{_PAST}test_a_pod_that_the_watch_has_not_told_of_is_never_known",),
    ),
    Mutant(
        "the gap is closed without listing vpods",
        _PREDECESSORS,
        "        await self._relist_all_vpods()\n",
        "",
        "stale read: what was on its way has arrived, and is not in the cache",
        (
            f"{_WAITS}test_once_what_was_under_way_has_arrived_and_vpods_are_listed_all_pasts_are_known",
        ),
    ),
    Mutant(
        "every leader believes it is the first",
        _PREDECESSORS,
        "if self._never_led_by_others(pod.pool):",
        "if self._ordinal_history.since >= 0.0:",
        "another leader's status may be on its way",
        (f"{_WAITS}test_after_a_list_the_past_of_a_pod_that_waits_is_unknown",),
    ),
    Mutant(
        "the last ledger is forgotten",
        _CARRY,
        "in_order = covered, held, published, placements_from_former_pool",
        "in_order = covered, published, placements_from_former_pool",
        "a returning ordinal must cover statuses that the watch has not shown (I2)",
        (f"{_STANDING}test_it_is_also_what_the_last_incarnation_carried",),
    ),
    Mutant(
        "placements from a former pool are not carried",
        _CARRY,
        "in_order = covered, held, published, placements_from_former_pool",
        "in_order = covered, held, published",
        "vpods that have changed to another pool still publish their old pods (I2)",
        (
            "tests/engine/state/test_placements_from_former_pool.py::test_a_pod_that_is_bound_anew_carries_what_vpods_of_other_pools_still_publish",
        ),
    ),
    Mutant(
        "what stands may overcommit",
        _CARRY,
        "return within_slots(slots, *in_order, capacities=most)",
        "return within_slots(1 << 30, *in_order, capacities=most)",
        "I1: a pod that has become smaller",
        (f"{_TEST}test_standing_placements_never_overcommit_a_pod_that_has_become_smaller",),
    ),
    Mutant(
        "what stands may overcommit a dimension",
        _CARRY,
        "return within_slots(slots, *in_order, capacities=most)",
        "return within_slots(slots, *in_order)",
        "I1: a pool whose capacities were lowered",
        (
            "tests/node/test_bind_ledger.py::TestDimensions::"
            "test_what_stands_is_cut_to_a_capacity_that_was_lowered",
        ),
    ),
    Mutant(
        "added on top without looking at the slots",
        _CARRY,
        "(slots if there == ordinal else known.capacity) - known.held - ledger_slots(back)",
        "(slots if there == ordinal else known.capacity) - ledger_slots(back)",
        "pending vreplicas would be added where others stand",
        (
            "tests/node/test_bind_ledger_shares.py::test_a_pod_on_which_others_stand_takes_less_of_what_is_pending",
        ),
    ),
    Mutant(
        "what comes back by itself is added again",
        _CARRY,
        " - returning.get(key, 0))",
        ")",
        "a vpod would get more than it wants",
        (f"{_STANDING}test_it_is_also_what_the_last_incarnation_carried",),
    ),
    Mutant(
        "closed ordinals get pending vreplicas",
        _CARRY,
        "return not (known.leaving or pool.is_closed(known))",
        "return not known.leaving",
        "what is being emptied would be filled again",
        (f"{_PLANNED}test_a_closed_ordinal_gets_nothing_new_and_what_stands_there_comes_back",),
    ),
    Mutant(
        "added for tenants that the pool does not select",
        _CARRY,
        "if not allows(vpod):",
        "if not key:",
        "a tenant would get slots of a pool that it may not use",
        (f"{_PLANNED}test_a_tenant_that_the_pool_does_not_select_gets_nothing",),
    ),
    Mutant(
        "the weight of added vreplicas is ignored",
        _CARRY,
        "free[there] -= count * vpod.weight",
        "free[there] -= count",
        "heavy vreplicas would be added where slots are taken",
        (
            "tests/node/test_bind_ledger_shares.py::test_heavy_vreplicas_leave_the_next_vpod_what_they_do_not_take",
        ),
    ),
    Mutant(
        "a node's slots are off by one",
        "extender/node/verbs.py",
        "taken + _declared(state, pod) > node.slots",
        "taken + _declared(state, pod) > node.slots + 1",
        "a node would get a slot more than it declares",
        (
            "tests/node/test_verbs.py::TestFilter::test_a_node_that_declares_slots_holds_no_more_than_those",
        ),
    ),
    Mutant(
        "expired decisions count",
        "extender/node/filter_results.py",
        "return entry if entry is not None and entry.expires_at > self._clock() else None",
        "return entry",
        "I5: kube-scheduler never says that it has given a pod up",
        ("tests/node/test_filter_results.py::test_results_expire",),
    ),
)
