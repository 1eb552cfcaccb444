"""Breaks of what decisions look at: the assume caches, the state, the plan, and what a pool may
lose.
"""

from tests.mutants.mutant import Mutant

_ASSUME = "extender/engine/cache/assume.py"
_PASSIVE = "extender/engine/cache/passive_assume.py"
_CACHES = "extender/engine/cache/caches.py"
_STATE = "extender/engine/state/pool_state.py"
_PODS = "extender/engine/state/pool_pods.py"
_CLAIMS = "extender/engine/pods/claims.py"
_BYTES = "tests/engine/pods/test_tenant_room.py::"
_PLAN = "extender/engine/placing/plan.py"
_BURST = "extender/engine/placing/burst.py"
_BURSTS = "tests/engine/placing/test_burst.py::"
_DOWN = "extender/engine/scaling/scale_down.py"
_SCALER = "extender/service/pools/pool_scaler.py"
_CLOSED = "extender/service/pools/closed_ordinals.py"
_MODES = "tests/service/pools/test_scaling_modes.py::"
_DOUBTS = "tests/service/pools/test_pool_scaler.py::test_"
_AFTER = "tests/engine/cache/test_assume.py::TestAfterAWrite::"
_BEFORE = "tests/engine/cache/test_assume.py::TestBeforeAWrite::"
_OBJECTS = "tests/engine/cache/test_caches.py::"
_PLANS = "tests/engine/placing/test_plan.py::"
_LEAVES = "tests/engine/scaling/test_scale_down.py::"
_SCALES = "tests/service/pools/test_autoscaler.py::"
_STATES = "tests/engine/state/test_state.py::"
_CLAIMED = "tests/engine/pods/test_claims.py::"

CACHES = (
    Mutant(
        "what a caller has left in another pool stays there",
        "extender/service/placing/placer.py",
        "if not vpod.vreplicas and not vpod.placements:",
        "if not vpod.key:",
        "I3: nobody ever takes it back",
        (
            "tests/service/http/test_schedule.py"
            "::test_what_a_pool_still_holds_is_taken_back_where_all_is_given_back_in_another_one",
        ),
    ),
    Mutant(
        "as many other nodes are taken for the same in another order",
        "extender/node/candidates.py",
        "fingerprint = len(names), sum(map(hash, names))",
        "fingerprint = len(names), 0",
        "filter passes a node that there is not, or that is full",
        (
            "tests/node/test_candidates.py"
            "::test_a_list_that_is_not_of_the_same_nodes_is_not_taken_for_another_order",
        ),
    ),
    Mutant(
        "an older object is accepted",
        _ASSUME,
        "if offered > stored:",
        "if offered != stored:",
        "stale read: events come late, and lists from old caches",
        (f"{_AFTER}test_an_event_that_is_not_newer_changes_nothing",),
    ),
    Mutant(
        "an older reply is accepted",
        _ASSUME,
        "if offered is None or stored is None or offered < stored:",
        "if offered is None or stored is None:",
        "stale read: the watch is ahead of it",
        (f"{_AFTER}test_assume_refuses_an_older_or_unreadable_version",),
    ),
    Mutant(
        "a decision made from an older object is assumed",
        _PASSIVE,
        "if stored.resource_version != obj.resource_version:\n            raise",
        "if not stored.resource_version:\n            raise",
        "the object has changed since it was decided",
        (f"{_BEFORE}test_assume_takes_the_stored_version_only",),
    ),
    Mutant(
        "an assumption outlives its version",
        _PASSIVE,
        "if assumed is None or assumed.resource_version != stored.resource_version:",
        "if assumed is None:",
        "what the API server says counts, not what we meant to write",
        (f"{_BEFORE}test_another_stored_version_voids_the_assumption",),
    ),
    Mutant(
        "restore undoes a later assumption",
        _PASSIVE,
        "if assumed is not None and assumed.resource_version == obj.resource_version:",
        "if assumed is not None:",
        "restore undoing too much: another bind has begun since",
        (f"{_BEFORE}test_restore_gives_up_what_was_assumed_at_that_version",),
    ),
    Mutant(
        "restore does nothing",
        _PASSIVE,
        "del self._assumed[obj.key]\n            self._reconcile(obj.key)",
        "self._reconcile(obj.key)",
        "lost revert",
        (f"{_BEFORE}test_restore_gives_up_what_was_assumed_at_that_version",),
    ),
    Mutant(
        "restore undoes what was written",
        _CACHES,
        "            self._effective.restore(assumed)\n",
        "            self._effective.restore(assumed)\n        self._stored.restore(key)\n",
        "restore undoing too much: what the API server has answered is true",
        (f"{_OBJECTS}test_what_is_written_is_not_restored",),
    ),
    Mutant(
        "the late end of a pod before removes the new one",
        _ASSUME,
        "if latest is None or _is_previous_incarnation(obj, latest):",
        "if latest is None:",
        "events of the same name, reordered",
        (f"{_AFTER}test_the_late_delete_of_a_previous_incarnation",),
    ),
    Mutant(
        "a relist forgets what was written since",
        _CACHES,
        "            if not newer:\n",
        "            if True:\n",
        "stale read: the list is older than our write",
        (f"{_OBJECTS}test_a_relist_forgets_what_is_gone_and_keeps_what_was_written_since",),
    ),
    Mutant(
        "a relist forgets nothing",
        _CACHES,
        "            if not newer:\n",
        "            if newer:\n",
        "pods that are gone would keep their slots",
        (f"{_OBJECTS}test_a_relist_forgets_what_is_gone_and_keeps_what_was_written_since",),
    ),
    Mutant(
        "a reply about another incarnation is taken",
        _CACHES,
        "if known is not None and known.uid != obj.uid:",
        "if known is not None and not obj.uid:",
        "the end of the pod before, and its last ledger, would never be seen (I2)",
        (f"{_OBJECTS}test_another_incarnation_is_left_to_the_watch",),
    ),
    Mutant(
        "a write that changed nothing leaves its assumption",
        _CACHES,
        "self.restore(obj.key)\n        return True",
        "return True",
        "the pod would count as being bound for ever",
        (f"{_OBJECTS}test_a_write_that_changed_nothing_ends_the_assumption_too",),
    ),
)

POOL_STATE = (
    Mutant(
        "the last ledger is kept only where the end was seen",
        _STATE,
        "(new is None or new.uid != old.uid):\n            pod.last_ledger,",
        "new is None:\n            pod.last_ledger,",
        "a relist shows the next incarnation in place of the last one (I2)",
        (
            f"{_CLAIMED}test_the_next_incarnation_that_comes_without_the_end_of_the_last_brings_its_ledger_back",
        ),
    ),
    Mutant(
        "a pending pod's annotation counts",
        _STATE,
        "new.ledger if new is not None and new.node and not new.finished else",
        "new.ledger if new is not None and not new.finished else",
        "before the bind it is anybody's advice",
        (f"{_CLAIMED}test_the_annotation_of_a_pod_that_is_not_bound_claims_nothing",),
    ),
    Mutant(
        "another owner's reservation is released",
        _STATE,
        "claim.reserved is not None and claim.owner == owner:",
        "claim.reserved is not None:",
        "undoing too much: a later decision's slots would be promised again",
        (f"{_CLAIMED}test_only_the_owner_releases_what_it_has_reserved",),
    ),
    Mutant(
        "a pod has what its annotation says, whatever its pool",
        _PODS,
        "slots = min(slots, own)",
        "slots = own",
        "I1: slotsPerPod is the limit",
        (f"{_CLAIMED}test_a_pod_has_no_more_slots_than_its_pool_gives_each",),
    ),
    Mutant(
        "a pod has what its annotation says, whatever it requests",
        "extender/model/objects.py",
        "return self.slots_request if self.slots is None else min(self.slots, self.slots_request)",
        "return self.slots",
        "I1: its node has no more for it",
        (
            "tests/service/watching/test_unexpected_writes.py::"
            "test_a_pod_is_as_large_as_what_it_requests_whatever_becomes_of_its_annotation",
        ),
    ),
    Mutant(
        "closed pods take work",
        _PODS,
        "open_ = pod.open = schedulable and pod.has_room and not self.closed & bit",
        "open_ = pod.open = schedulable and pod.has_room",
        "what is placed there stops it from ever being removed",
        (f"{_SCALES}test_what_stands_on_a_pod_keeps_it_and_nothing_new_comes_there",),
    ),
    Mutant(
        "a full pod has room",
        _CLAIMS,
        "return self.capacity > self.held and",
        "return self.capacity >= self.held and",
        "off by one in capacity",
        (f"{_CLAIMED}test_a_full_pod_has_no_room",),
    ),
    Mutant(
        "a namespace may take all bytes of a ledger",
        _STATE,
        "return self.open_to(self.room, vpod_key) if self.tenant_room.spent else self.room",
        "return self.room",
        "long names keep every other tenant out of a pod",
        (f"{_BYTES}test_it_goes_where_its_share_is_not_spent",),
    ),
    Mutant(
        "a namespace does not get its share back",
        "extender/engine/pods/tenant_room.py",
        "elif left := known.get(tenant, 0) + change:",
        "elif left := known.get(tenant, 0) + abs(change):",
        "incremental is not rebuilt: it would wait for ever",
        (f"{_BYTES}test_what_is_counted_by_differences_is_what_counting_anew_finds",),
    ),
    Mutant(
        "sizing knows slots alone",
        "extender/engine/scaling/packing.py",
        "fitting = self._ledgers.open_to(among & self._with_slots(weight), vpod_key)",
        "fitting = among & self._with_slots(weight)",
        "liveness: who finds slots and no bytes waits for ever, and the pool does not grow",
        (f"{_BYTES}test_a_pool_grows_for_who_finds_slots_and_no_bytes",),
    ),
    Mutant(
        "a vpod's entry counts again with each of its vreplicas",
        "extender/engine/state/ledger_room.py",
        "            if not own >> ordinal & 1:\n",
        "            if key:\n",
        "plans would find less room than there is, and pools grow for nothing",
        (f"{_BYTES}test_what_a_plan_counts_is_what_the_state_does_once_it_is_reserved",),
    ),
    Mutant(
        "a bind carries what a namespace has no bytes for",
        "extender/node/bind_ledger.py",
        "round_robin(ledgers.open_to(room, key), own,",
        "round_robin(room, own,",
        "long names keep every other tenant out of a new pod",
        (f"{_BYTES}test_a_bind_carries_no_more_of_a_namespace_than_its_share",),
    ),
    Mutant(
        "a move goes where there are no bytes",
        "extender/engine/rebalance/relocation.py",
        "or not pool.room_for(vpod.key) >> to.ordinal & 1",
        "or pool.is_closed(to)",
        "its ledger can never be written, and it is tried again and again",
        (f"{_BYTES}test_nothing_is_moved_into_a_ledger_without_bytes",),
    ),
    Mutant(
        "who finds no bytes is told of slots",
        "extender/engine/placing/plan.py",
        "reason = reason_for(refused) if reason is ConflictReason.INSUFFICIENT_SLOTS else reason",
        "reason = reason",
        "a person would make slots, of which there are enough",
        (f"{_BYTES}test_who_finds_slots_and_no_bytes_is_told_so",),
    ),
    Mutant(
        "room is promised before a shrink is written",
        _CLAIMS,
        "self.held_slots = held if reserved is None else max(held, reserved.slots)",
        "self.held_slots = held if reserved is None else reserved.slots",
        "I1: the ledger still has it",
        (f"{_CLAIMED}test_what_a_decision_takes_away_is_held_until_it_is_written",),
    ),
    Mutant(
        "a ledger ahead of the status is not adopted",
        _CLAIMS,
        "known = ledger if ledger.vreplicas >= status.vreplicas else status",
        "known = status",
        "I4: a crash between two writes would move vreplicas",
        (
            "tests/engine/state/test_state.py::TestClaims::test_decisions_start_from_the_larger_of_ledger_and_status",
        ),
    ),
    Mutant(
        "a status that comes down to the ledger changes nothing",
        _CLAIMS,
        "return status == self.ledger and not self.status.vreplicas",
        "return status == self.ledger",
        "what was published would be held for ever",
        (f"{_CLAIMED}test_a_status_that_comes_down_to_the_ledger_frees_what_it_published",),
    ),
    Mutant(
        "a status that repeats the ledger counts twice",
        _STATE,
        "                known.status = share\n",
        "                known.status = share\n                self.pods[name].held += "
        "share.slots\n",
        "every pod would seem full after a start",
        (f"{_CLAIMED}test_a_status_that_says_what_the_ledger_does_holds_nothing_more",),
    ),
    Mutant(
        "an event of the next incarnation counts as known",
        _CACHES,
        "(latest.uid, latest.resource_version) != (uid, resource_version)",
        "latest.uid != uid",
        "stale read: whatever others write would never be seen",
        (f"{_OBJECTS}test_only_an_event_of_the_newest_version_is_known",),
    ),
    Mutant(
        "weight is ignored in what is held",
        "extender/model/ledger.py",
        "return self.vreplicas * self.weight",
        "return self.vreplicas",
        "I1: heavy vreplicas take more than one slot",
        (f"{_CLAIMED}test_heavy_vreplicas_hold_all_their_slots",),
    ),
    Mutant(
        "a dimension is not looked at",
        _CLAIMS,
        "free = min(free, (left // amount - kept) * weight)",
        "pass",
        "I1: a pod gets more than it has of memory, say",
        (
            "tests/engine/placing/test_dimensions.py::"
            "test_no_profile_gives_a_pod_more_than_it_has_of_a_dimension",
            "simulate --seeds 12 --events 60 --profile tests/mutants/dimensions.yaml",
        ),
    ),
    Mutant(
        "a dimension's sum forgets what has left",
        _STATE,
        "add_to(pod.held_amounts, held, -1)",
        "pass",
        "liveness: a pod seems full of what it no longer holds",
        (
            "tests/engine/placing/test_dimensions.py::"
            "test_a_reservation_counts_before_it_is_written",
        ),
    ),
    Mutant(
        "the ledger's sum ignores the weight",
        "extender/model/ledger.py",
        "return sum(share.vreplicas * share.weight for share in ledger.values())",
        "return sum(share.vreplicas for share in ledger.values())",
        "I1: the last check before a ledger is written",
        (f"{_CLAIMED}test_a_ledger_adds_up_by_weight",),
    ),
)

PLAN = (
    Mutant(
        "what is only reserved for another pushes a vpod out",
        _PLAN,
        "over = pod.written_beside(self.key).get(SLOTS, 0) + count * weight - pod.capacity\n",
        "pass\n",
        "I4: it leaves for what cannot be written",
        (f"{_PLANS}test_what_is_only_reserved_pushes_nobody_out",),
    ),
    Mutant(
        "an overcommitted pod keeps one too many",
        _PLAN,
        "cut = min(count, -(-over // weight)) if over > 0 else 0",
        "cut = min(count, over // weight) if over > 0 else 0",
        "off by one: what is over is no multiple of the weight",
        (f"{_CLAIMED}test_an_overcommitted_pod_of_heavy_vreplicas_comes_back_under_its_slots",),
    ),
    Mutant(
        "a tenant that may not use the pool keeps what no pod can hold",
        _PLAN,
        "            self.kept = {name: fits for name, count in self.kept.items() if (fits := "
        "self._trim(name, count))}\n",
        "            pass\n",
        "I2: its status publishes what no ledger can cover",
        (f"{_PLANS}test_a_tenant_that_may_not_use_the_pool_keeps_no_more_than_its_pods_can_hold",),
    ),
    Mutant(
        "a tenant that may not use the pool gets what was on its way to it",
        _PLAN,
        "self._shrink_to(min(self.vpod.vreplicas, self._published()))",
        "self._shrink_to(self.vpod.vreplicas)",
        "status: a pool's namespaceSelector is for what is placed from then on",
        (f"{_PLANS}test_a_tenant_that_may_not_use_the_pool_gets_nothing_more_than_it_publishes",),
    ),
    Mutant(
        "a tenant that is let in again waits in no queue",
        "extender/service/placing/activation.py",
        "                if vpod.namespace == changed.name:\n",
        "                if not vpod.key:\n",
        "liveness: what its pool asked of it meanwhile is never done",
        (
            "tests/service/placing/test_placer.py"
            "::test_a_tenant_that_is_let_in_again_leaves_the_pod_that_was_to_be_emptied",
        ),
    ),
    Mutant(
        "callers leave pods in a dry run",
        _PLAN,
        "leave_closed and pool.adapter_pool is not None and pool.adapter_pool.moves_to_shrink",
        "leave_closed",
        "I4: a pool that moves nothing moved callers' vreplicas",
        (f"{_PLANS}test_who_publishes_itself_leaves_a_pod_to_be_emptied",),
    ),
    Mutant(
        "who grows heavier counts on what another is about to leave",
        _PLAN,
        "own = max(claim.ledger.slots, pod.free + claim.held_slots)",
        "own = max(claim.ledger.slots, pod.capacity - pod.decided + claim.decided.slots)",
        "I4: a third has to leave the pod for overcommitment where the other one cannot leave",
        (f"{_PLANS}test_growing_heavier_takes_no_room_that_another_one_has_not_left_yet",),
    ),
    Mutant(
        "what a vpod keeps weighs nothing",
        "extender/engine/placing/grow.py",
        "return pod.capacity - pod.held + held - kept.get(pod.name, 0) * weight",
        "return pod.capacity - pod.held + held - kept.get(pod.name, 0)",
        "I1: a vpod that grows heavier",
        (f"{_PLANS}test_growing_heavier_leaves_no_room_that_the_heavier_ones_need",),
    ),
    Mutant(
        "another order counts even if it leaves as much",
        _BURST,
        "if (result := result_of(pool, tried, ages)) < best:",
        "if (result := result_of(pool, tried, ages)):",
        "the last order that was tried would count, and not the best one",
        (f"{_BURSTS}test_the_first_order_stays_if_no_other_is_better",),
    ),
    Mutant(
        "the last order that was tried stays reserved",
        _BURST,
        "    release([decision.vpod for decision in tried])\n    return found\n",
        "    return found\n",
        "the next decisions would start from it",
        (f"{_BURSTS}test_an_order_is_found_in_which_all_have_room",),
    ),
    Mutant(
        "a vpod is decided before one that came earlier",
        _BURST,
        "key=lambda key: (ages[key], crc32",
        "key=lambda key: (crc32",
        "a light vpod waits for ever while heavy ones come and go",
        (f"{_BURSTS}test_vpods_that_came_later_change_nothing_for_those_that_came_before",),
    ),
    Mutant(
        "what waits counts alike, whenever it came",
        _BURST,
        "return Result(tuple(left.values()),",
        "return Result((sum(left.values()),),",
        "an older vpod would be left out so that younger ones fit",
        (f"{_BURSTS}test_vpods_that_came_later_change_nothing_for_those_that_came_before",),
    ),
    Mutant(
        "any burst in a large pool is decided nine times",
        _BURST,
        "and _tries(pool, decisions) > 0",
        "",
        "the extender's verbs would wait for it",
        (f"{_BURSTS}test_a_burst_that_would_take_too_long_has_one_order",),
    ),
    Mutant(
        "no other order is tried",
        "extender/service/placing/placer.py",
        "if any_order and may_fit_better(state, decisions):",
        "if False:",
        "a vreplica waits that would have room",
        (
            "tests/service/placing/test_placer.py::test_a_burst_finds_room_in_another_order_if_the_heaviest_first_leaves_some",
        ),
    ),
    Mutant(
        "other orders are tried although a write has had no reply",
        "extender/service/placing/placer.py",
        "not any(state.is_reserved(key) for key in keys)",
        "True",
        "I4: what it may have moved would be moved back",
        (
            "tests/service/placing/test_placer.py::test_what_may_have_been_written_counts_in_any_order_of_a_burst",
        ),
    ),
    Mutant(
        "a pod that restarts loses its vreplicas",
        _PLAN,
        "elif not pod.schedulable and not self.rules.keep_on_unavailable:",
        "elif not pod.schedulable:",
        "I4: Knative's defect, every restart moves work",
        (f"{_PLANS}TestMinPodsPerVPod::test_a_restarting_pod_does_not_lower_the_target",),
    ),
    Mutant(
        "a drained pod is left without a place to go",
        _PLAN,
        "        if left:\n            self._hold_back(left)\n",
        "",
        "I3: vreplicas would be lost on the way",
        (f"{_PLANS}test_a_drained_pod_keeps_what_has_no_room_elsewhere",),
    ),
    Mutant(
        "what an unwritten decision takes away goes elsewhere",
        _PLAN,
        "if more <= 0 or not self.rules.start_from_decided or self._may_be_in_hand_over(placed):",
        "if more:",
        "I4: it is published there still",
        (f"{_PLANS}test_what_an_unwritten_decision_takes_away_stays_where_it_is_published",),
    ),
    Mutant(
        "what no status has published goes last",
        _PLAN,
        "for published in (False, True):",
        "for published in (True,):",
        "I4: what a crash has left over goes before what stands",
        (f"{_PLANS}test_what_no_status_has_published_goes_first_when_too_many",),
    ),
    Mutant(
        "ordinals that are gone keep their vreplicas",
        _PLAN,
        "            if self._is_lost(pod):\n                self._note(Step.DROPPED",
        "            if not pod.name:\n                self._note(Step.DROPPED",
        "I3: nobody would ever work there",
        (f"{_PLANS}test_placements_on_ordinals_that_are_gone_move",),
    ),
)

SCALE_DOWN = (
    Mutant(
        "the later of two pools has the StatefulSet, too",
        "extender/engine/state/cluster_state.py",
        "stateful_set if name == owner else None",
        "stateful_set",
        "two pools undo each other's scaling, under what is placed",
        (f"{_STATES}test_of_pools_that_name_one_stateful_set_all_replicas_choose_the_same",),
    ),
    Mutant(
        "what a pod holds for another pool does not count",
        _DOWN,
        "if not all(holds_nothing(entry) for _, entry in elsewhere):",
        "if False:",
        "a pool that has got another's StatefulSet scales away what that has placed",
        (f"{_LEAVES}test_a_pod_that_holds_anything_for_another_pool_stays",),
    ),
    Mutant(
        "what runs without its ordinal is dropped at once",
        _PLAN,
        "return not (self.pool.is_member(pod) or pod.condemned)",
        "return not self.pool.is_member(pod)",
        "another ordinals.start takes everything out of service before the new pods are there",
        (f"{_PLANS}test_what_is_on_pods_that_run_without_their_ordinal_stays_until_there_is_room",),
    ),
    Mutant(
        "an ordinal that is not known yet is taken for one that is gone",
        _PODS,
        "if now - self._gone_since[pod.name] < HOLD_S:",
        "if False:",
        "our watch of StatefulSets may be behind that of pods (I2)",
        (
            f"{_STATES}TestWhatTheLastIncarnationCarried::test_it_is_forgotten_a_while_after_its_ordinal_has_gone",
        ),
    ),
    Mutant(
        "what a pending pod's last one held keeps its ordinal for ever",
        _PODS,
        "pod.last_ledger_settled = True",
        "pod.last_ledger_settled = False",
        "a pool whose highest pod finds no node would never shrink",
        (
            f"{_STATES}TestWhatTheLastIncarnationCarried::test_where_its_ordinal_is_expected_back_it_only_grows_old",
        ),
    ),
    Mutant(
        "what a last incarnation carried does not keep its ordinal",
        _DOWN,
        "return not (pod.claims or pod.held or expected_back or unreadable)",
        "return not (pod.claims or pod.held or unreadable)",
        "a status on its way relies on it",
        (f"{_LEAVES}test_a_pod_that_holds_anything_stays_and_all_below_it",),
    ),
    Mutant(
        "an unreadable ledger does not keep its pod",
        _DOWN,
        "return not (pod.claims or pod.held or expected_back or unreadable)",
        "return not (pod.claims or pod.held or expected_back)",
        "nobody knows what it holds",
        (f"{_LEAVES}test_a_pod_that_holds_anything_stays_and_all_below_it",),
    ),
    Mutant(
        "pods that hold something are removed",
        _DOWN,
        "return not (pod.claims or pod.held or expected_back or unreadable)",
        "return True",
        "nothing is lost",
        (
            f"{_LEAVES}test_a_pod_that_holds_anything_stays_and_all_below_it",
            "simulate --seed 7000 --seeds 4 --events 60 --profile tests/mutants/failing_nodes.yaml",
        ),
    ),
    Mutant(
        "open pods are removed",
        _DOWN,
        "if not state.closed & 1 << ordinal or not (pod is None or holds_nothing(pod)):",
        "if not (pod is None or holds_nothing(pod)):",
        "between the look and the write something may be placed there",
        (f"{_LEAVES}test_a_pod_that_is_not_closed_stays_though_it_is_empty",),
    ),
    Mutant(
        "more is closed than fits below",
        _DOWN,
        "    if fits(wanted):\n        return wanted\n",
        "    if fits(replicas):\n        return wanted\n",
        "pods would stay closed and half empty for ever",
        (f"{_LEAVES}test_heavy_vreplicas_that_fit_nowhere_below_keep_their_pod_open",),
    ),
    Mutant(
        "scaled first, evicted later",
        _SCALER,
        "count = max(again.plan.wanted, count_without_empty(again.state, state))",
        "count = again.plan.wanted",
        "Knative's defect: placements on pods that are gone",
        (f"{_SCALES}test_max_pods_below_what_is_needed_removes_nothing_that_holds_something",),
    ),
    Mutant(
        "what fewer pods would need is not looked at",
        _SCALER,
        "        count = lasting_count(again.state, count, again.allows)\n",
        "",
        "the pool would grow again at once, and shrink again, and so on",
        (
            "tests/service/pools/test_pool_scaler.py::test_a_pod_that_a_vpod_needs_which_came_while_the_scale_was_read_stays",
        ),
    ),
    Mutant(
        "a pool that grows for pods that leave was made too small",
        _SCALER,
        "if to_replace(view.state):",
        "if False:",
        "each drained pod doubles the time for which empty pods stay (seed 321000208)",
        (
            f"{_SCALES}test_a_pool_that_grew_for_a_drained_pod_is_made_smaller_again_in_its_next_period",
        ),
    ),
    Mutant(
        "what grows heavier is no less room",
        "extender/engine/scaling/packing.py",
        "self._free[ordinal] = pod.capacity - pod.decided - _heavier(pod)",
        "self._free[ordinal] = pod.capacity - pod.decided",
        "liveness: placing keeps that room from others, and the pool does not grow",
        (
            "tests/engine/scaling/test_scaling.py::test_room_that_a_vpod_keeps_because_it_was_made_heavier_is_no_room",
        ),
    ),
    Mutant(
        "an unanswered scale-down is forgotten",
        _SCALER,
        "            self.closed.may_still_shrink(scale, replicas)\n",
        "",
        "late write: it removes what was placed there meanwhile",
        (
            f"{_DOUBTS}what_an_unanswered_scale_down_may_still_remove_stays_closed_though_wanted_again",
        ),
    ),
    Mutant(
        "a new leader trusts that nothing is under way",
        _CLOSED,
        "if not no_predecessor_writes(key):",
        "if False:",
        "late write of the leader before",
        (f"{_DOUBTS}what_the_leader_before_may_have_removed_is_closed_before_anything_is_placed",),
    ),
    Mutant(
        "useless closings go on for ever",
        _CLOSED,
        "self._useless_in == surroundings(state)",
        "self._useless_in == 1",
        "two statuses in each 64 periods, for as long as a vpod waits (seed 206268750)",
        (
            "tests/service/pools/test_closed_ordinals.py::"
            "test_useless_closings_end_until_what_is_asked_for_has_changed",
        ),
    ),
    Mutant(
        "what is closed in doubt is said to be emptied",
        _CLOSED,
        "state.set_closed(closed, in_doubt=self._only_in_doubt)",
        "state.set_closed(closed)",
        "a new leader would tell waiting objects of a scale-down that nobody has begun",
        (f"{_DOUBTS}what_is_closed_for_the_leader_before_is_not_said_to_be_emptied",),
    ),
    Mutant(
        "a misplaced pod that is not Ready waits for itself",
        "extender/node/descheduling.py",
        "serves = known.serving or not node.ready",
        "serves = True",
        "a pod that crashes on a node that it should have left would stay there for ever",
        (
            "tests/node/test_descheduling.py::test_a_pod_that_is_not_ready_itself_goes_first_however_much_it_holds",
        ),
    ),
    Mutant(
        "what is closed in doubt is removed",
        _SCALER,
        "if not (self.closed.only_in_doubt or view.plan.external):",
        "if not view.plan.external:",
        "each failover would shrink pools before their period",
        (f"{_DOUBTS}what_is_closed_for_the_leader_before_is_not_removed_for_it",),
    ),
    Mutant(
        "advice is written as if the pool were managed",
        _SCALER,
        "wanted = view.plan.wanted\nif not view.pool.writes_replicas:",
        "wanted = view.plan.wanted\n        if False:",
        "two would write replicas, and undo each other",
        (f"{_MODES}test_advice_that_nobody_follows_is_told",),
    ),
    Mutant(
        "pods that advice has left out take vreplicas at once",
        _SCALER,
        "self.closed.may_still_shrink(scale, count)\n            return",
        "return",
        "whoever follows the advice may remove them a moment later, with what is on them",
        (f"{_MODES}test_pods_that_old_advice_may_still_remove_take_nothing_new",),
    ),
    Mutant(
        "pods whose end is announced are opened for who waits",
        "extender/service/pools/closed_ordinals.py",
        "None if plan.cannot_grow else",
        "None if plan.limited else",
        "they are never empty when they go",
        (
            "tests/service/pools/test_closed_ordinals.py::"
            "test_what_others_have_announced_to_remove_stays_closed_whoever_waits",
        ),
    ),
    Mutant(
        "no lost pod is replaced where nothing is at work",
        "extender/engine/scaling/packing.py",
        "alone[: serving + 1]",
        "alone[:serving]",
        "a pool whose only pod is never Ready would not grow",
        (
            "tests/engine/scaling/test_scaling.py::TestPodsTakenForLost"
            "::test_the_only_pod_of_a_pool_is_replaced_too",
        ),
    ),
    Mutant(
        "any other version of a StatefulSet ends the doubt",
        "extender/engine/scaling/shrink_doubt.py",
        "seen > asked",
        "seen != asked",
        "the watch lags: an older version says nothing",
        ("tests/engine/scaling/test_shrink_doubt.py::test_an_older_version_says_nothing",),
    ),
    Mutant(
        "replicas that the watch has not shown",
        _SCALER,
        "if scale.resource_version != again.stateful_set.resource_version:",
        "if scale.replicas < 0:",
        "stale read: what we know of the ordinals is older than the scale",
        (
            "tests/service/pools/test_pool_scaler.py::test_pods_that_the_watch_has_not_shown_yet_are_not_removed",
            "tests/service/pools/test_pool_scaler.py::test_ordinals_that_have_moved_unseen_are_not_cut_by_the_number_of_before",
        ),
    ),
    Mutant(
        "what an ordinal's last pod held is forgotten while its next one waits",
        "extender/engine/state/pool_pods.py",
        "if self.is_member(pod) or pod.pod is not None:",
        "if self.is_member(pod):",
        "I2 (seed 590003167): our view of the StatefulSet is behind for long",
        (
            "tests/engine/state/test_state.py::TestWhatTheLastIncarnationCarried::"
            "test_it_is_kept_as_long_as_the_next_pod_waits_where_that_view_stays_behind",
        ),
    ),
    Mutant(
        "a vpod with maxPerPod keeps what it has above beside what fits below",
        "extender/engine/scaling/size.py",
        "missing_vreplicas(state, pool, allows, packing.going, packing.above)",
        "missing_vreplicas(state, pool, allows, packing.going)",
        "moves without end (seed 600000376): a pod is closed, needed and opened again",
        (
            "tests/engine/scaling/test_scale_down.py::"
            "test_a_pod_is_not_closed_if_max_per_pod_needs_it_wherever_its_vpod_stands",
        ),
    ),
    Mutant(
        "a vreplica makes way on a pod whose ledger is full",
        "extender/engine/rebalance/swaps.py",
        "if not missing or not draft.open_to(1 << ordinal, vpod.key):",
        "if not pod:",
        "one vreplica after the other moves for nothing (seed 590002711)",
        (
            "tests/engine/rebalance/test_swaps.py::"
            "test_nothing_makes_way_on_a_pod_whose_ledger_is_full",
        ),
    ),
    Mutant(
        "a vpod is moved off a pod and another of its vreplicas comes there",
        "extender/engine/rebalance/relocation.py",
        "for move in _direct(moves):",
        "for move in moves:",
        "I4 (seed 590001071): its status names a pod to which nothing has gone",
        (
            "tests/engine/rebalance/test_relocation.py::"
            "test_no_pod_is_left_by_one_vreplica_and_gets_another_of_the_same_vpod",
        ),
    ),
    Mutant(
        "one of a higher priority waits for the end of its tenant's round",
        "extender/service/placing/queue.py",
        "if self._outranked or not (self._round and self._waiting.keys() <= self._had_turn):",
        "if not (self._round and self._waiting.keys() <= self._had_turn):",
        "vpods of lower priorities take the last slots",
        (
            "tests/service/placing/test_queue.py::TestTenantsTakeTurns::"
            "test_one_of_higher_priority_does_not_wait_for_the_end_of_its_tenants_round",
        ),
    ),
    Mutant(
        "a pool is sized by a mode that has ended while its scale was read",
        _SCALER,
        "if again is None or not again.pool.writes_replicas or again.plan.wanted < wanted:",
        "if again is None:",
        "replicas are written that are others' by now",
        (
            "tests/service/pools/test_pool_scaler.py::"
            "test_a_pool_that_others_size_by_the_time_its_scale_is_read_is_not_scaled",
        ),
    ),
    Mutant(
        "a vpod in quarantine gets further places",
        "extender/engine/state/cluster_state.py",
        "return not vpod.quarantined and self.allows(state.adapter_pool, vpod.namespace)",
        "return self.allows(state.adapter_pool, vpod.namespace)",
        "one pod after the other crashes",
        (
            "tests/service/pools/test_quarantine.py::"
            "test_it_keeps_what_it_has_and_gets_no_further_place",
            "simulate --seed 900000000 --seeds 4 --events 200 --profile tests/mutants/crashes.yaml",
        ),
    ),
    Mutant(
        "a vpod in quarantine is moved",
        "extender/engine/rebalance/relocation.py",
        "vpod.deleting or vpod.quarantined or any(",
        "vpod.deleting or any(",
        "the evictor brings it to the next pod",
        (
            "tests/service/pools/test_quarantine.py::"
            "test_the_evictor_moves_nothing_of_it_off_a_drained_pod",
        ),
    ),
    Mutant(
        "a crash counts against what has left the pod",
        "extender/engine/rebalance/crashes.py",
        "if name == new.name and key in old.ledger",
        "if name == new.name",
        "a vpod that does no harm is put into quarantine",
        (
            "tests/engine/rebalance/test_crashes.py::"
            "test_what_has_left_a_pod_before_it_crashes_did_no_harm",
        ),
    ),
    Mutant(
        "old crashes count against a vpod that was released",
        "extender/service/pools/quarantine.py",
        "            known.forget(vpod.key)\n        self._event(",
        "            pass\n        self._event(",
        "it goes back into quarantine at once",
        ("tests/service/pools/test_quarantine.py::test_a_person_releases_it",),
    ),
)
