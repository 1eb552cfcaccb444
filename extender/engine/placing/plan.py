"""Placing (DESIGN 5.1): which vreplicas of one vpod go on which pods.

Pure: a plan looks at the state and returns a ``Decision``. The caller reserves and writes it. The
steps are methods of ``_Plan``; docs/architecture.md explains the words for pods:

1. ``_keep``: keep what is decided (``_start``), even on pods that are Pending, restarting, or on
   cordoned or failing nodes. Drop what is on lost ordinals. Set aside what is on pods that are
   leaving. Trim what overcommits a pod.
2. ``_wanted``: the vreplicas that the vpod asks for, raised to min(minPodsPerVPod, max(schedulable
   pods, pods in use)).
3. ``_shrink``, if these are fewer: take away from the highest ordinal down. What no status has
   published goes first.
4. ``_fill``, if they are more: add one vreplica at a time, by round robin over schedulable pods
   with room. Pods without a placement of this vpod come first, then those with one, both by
   ascending ordinal (Knative's order). A profile with plugins asks its plugins instead, here and in
   step 3 (DESIGN 5.2).
5. ``_hold_back``: what was set aside and has no room elsewhere stays where it is, so nothing is
   lost on the way.

Before step 3, ``_must_replace_all`` may have all vreplicas placed anew, as Knative's plugins do.
After step 5, ``_even_out`` may do so.

At the end, ``_all_or_nothing`` takes everything back if the vpod would have fewer vreplicas than it
needs together (``minAvailable``).

``Rules`` (of the pool's profile) lists our deliberate differences from Knative. ``KNATIVE_RULES``
and ``KNATIVE_1_16_RULES`` each switch off the differences from one version of Knative. Under them,
placing follows that version's algorithm; tests compare it case by case.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from extender.engine.placing.explain import Explanation, Reasoning, Step, added
from extender.engine.placing.grow import free_beside, grow
from extender.engine.placing.refused import reason_for, why_refused
from extender.engine.placing.replace_all import replace_all, room_once_left, steps_between
from extender.engine.placing.select import shrink
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import Claim, PodClaims
from extender.engine.policy.even_pod_spread import EvenPodSpread
from extender.engine.policy.guard import PluginFailed
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import NO_AMOUNTS, SLOTS, Amounts, times
from extender.model.ledger import Share, share_of
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod, placement_order
from extender.model.reasons import ConflictReason

_LOST: Final = frozenset({Step.DROPPED, Step.TRIMMED})
"""Steps of vreplicas that have left a pod for a reason."""
_NOT_ALLOWED: Final = frozenset({ConflictReason.TENANT_NOT_ALLOWED, ConflictReason.QUARANTINED})
"""Why a vpod may get no place, whatever the pool has."""


class Decision(NamedTuple):
    """Where all vreplicas of a vpod should be. ``target``: pod name -> vreplicas, by ordinal, no
    zeros.

    ``weight``: slots of one vreplica. ``pending``: vreplicas without a place.
    ``decided_version``: UID and generation of the decided vpod; ("", 0) for one that is gone.
    ``tie_start``: the ordinal from which ties were broken (``Ties.ROUND_ROBIN``). ``amounts``: what
    one vreplica takes of the pool's dimensions.
    """

    vpod: str
    pool: str
    target: Mapping[str, int]
    weight: int
    pending: int
    explanation: Explanation
    decided_version: tuple[str, int] = ("", 0)
    tie_start: int = 0
    amounts: Amounts = NO_AMOUNTS

    @property
    def scheduled(self) -> int:
        """vreplicas that have a place."""
        return sum(self.target.values())

    @property
    def moves(self) -> tuple[Move, ...]:
        """Vreplicas that leave a pod although they are still wanted, paired with where they go, in
        the order of the steps.
        """
        steps = self.explanation.steps
        leaving = [(s.pod_name, s.vreplicas, s.reason) for s in steps if s.reason is not None]
        if not leaving:
            return ()
        coming = [(s.pod_name, s.vreplicas) for s in steps if s.step is Step.ADDED]
        return tuple(_pair(self.vpod, leaving, coming))

    def shares(self, also: Iterable[str]) -> dict[str, Share]:
        """Pod name -> the share to reserve there: on each pod of the target, and a share of 0 on
        those of ``also`` that are not in it.
        """
        target, weight, amounts = self.target, self.weight, self.amounts
        shares = {name: share_of(count, weight, amounts) for name, count in target.items()}
        for name in also:
            if name not in shares:
                shares[name] = share_of(0, weight, amounts)
        return shares

    def share(self, vreplicas: int) -> Share:
        """The share of so many of the vpod's vreplicas on one pod."""
        return share_of(vreplicas, self.weight, self.amounts)


def _pair(
    vpod: str, leaving: list[tuple[str, int, MoveReason]], coming: list[tuple[str, int]]
) -> Iterator[Move]:
    room = list(coming)
    for name, count, reason in leaving:
        left = count
        for index, (place, free) in enumerate(room):
            if taken := min(left, free):
                room[index] = (place, free - taken)
                left -= taken
                yield Move(vpod, name, place, taken, reason)
        if left:
            yield Move(vpod, name, "", left, reason)


def place(
    pool: PoolState,
    vpod: VPod,
    *,
    allowed: bool,
    leave_closed: bool = False,
    taken_back: bool = False,
) -> Decision:
    """Decide for one vpod. ``allowed``: whether it may get places in the pool
    (``ClusterState.selects``).

    ``leave_closed``: also place elsewhere what it has on closed pods (``PoolPods.closed``), if the
    pool moves vreplicas to shrink. Only for vpods of callers of ``POST /v1/schedule``; the evictor
    moves all others.

    ``taken_back``: a hand-over to other pods was taken back. So start from what is published, and
    leave no draining pod that serves.

    The cost is in proportion to the vpod's own placements and the vreplicas to add, not to the
    pool. If a third-party plugin fails, the vpod stays as it is (``PLUGIN_FAILED``), and no other
    vpod is affected.
    """
    try:
        return _Plan(pool, vpod, leave_closed=leave_closed, taken_back=taken_back).run(
            allowed=allowed
        )
    except PluginFailed as failure:
        return _Plan(pool, vpod).stand_still(ConflictReason.PLUGIN_FAILED, str(failure))


def release_all(pool: PoolState, vpod_key: str) -> Decision:
    """The decision for a vpod that is gone or has left this pool: nothing, anywhere."""
    steps = tuple(
        Reasoning(Step.REMOVED, name, count, "vpod is not in this pool any more")
        for name, count in pool.decided_of(vpod_key).items()
    )
    return Decision(vpod_key, pool.key, {}, 1, 0, Explanation(0, steps, 0, None))


class _Plan:
    """The working values of one ``place``."""

    def __init__(
        self, pool: PoolState, vpod: VPod, *, leave_closed: bool = False, taken_back: bool = False
    ) -> None:
        self.taken_back = taken_back
        self.leave_closed = (
            leave_closed and pool.adapter_pool is not None and pool.adapter_pool.moves_to_shrink
        )
        self.pool = pool
        self.vpod = vpod
        self.key = vpod.key
        self.rules = pool.profile.rules
        self.hands_over = pool.adapter_pool is not None and pool.adapter_pool.hands_over
        self.weight = vpod.weight
        self.amounts = vpod.per_vreplica
        self.failure = ""
        self.kept: dict[str, int] = {}
        self.leaving: dict[str, int] = {}
        self.steps: list[Reasoning] = []

    def run(self, *, allowed: bool) -> Decision:
        problem = self._problem(allowed=allowed)
        if problem is ConflictReason.UNSATISFIABLE:
            return self._give_up(problem)
        if problem is not None:
            return self.stand_still(problem)
        self._keep()
        wanted = self._wanted()
        if self._must_replace_all(wanted):
            left = self._try_replacing_all(wanted)
            return self._all_or_nothing(
                self._decision(wanted, left, ConflictReason.INSUFFICIENT_SLOTS)
            )
        while (surplus := sum(self.kept.values()) - wanted) > 0:
            self._shrink(surplus)
            # minPodsPerVPod raises what is wanted up to the pods in use, and those have become
            # fewer. So fewer are wanted. Lower it here at once, and not by one step a decision.
            wanted = self._wanted()
        left = self._fill(-surplus)
        if left and self._may_even_out():
            left = self._even_out(wanted, left)
        return self._all_or_nothing(self._decision(wanted, left, ConflictReason.INSUFFICIENT_SLOTS))

    # -- what cannot be decided --------------------------------------------------------------------

    def _problem(self, *, allowed: bool) -> ConflictReason | None:
        if self.pool.adapter_pool is None:
            return ConflictReason.POOL_NOT_FOUND
        if self.pool.stateful_set is None:
            taken = self.pool.taken_by
            return (
                ConflictReason.STATEFULSET_TAKEN if taken else ConflictReason.STATEFULSET_NOT_FOUND
            )
        if not allowed:
            quarantined = self.vpod.quarantined
            return ConflictReason.QUARANTINED if quarantined else ConflictReason.TENANT_NOT_ALLOWED
        pool, vpod = self.pool.adapter_pool, self.vpod
        fits = pool.could_hold(vpod)
        if fits and vpod.min_available > 1 and not self._published():
            fits = not pool.misfit_together(vpod)
        return None if fits else ConflictReason.UNSATISFIABLE

    def stand_still(self, problem: ConflictReason, failure: str = "") -> Decision:
        """Add nothing and choose no pod. Remove what is more than the vpod wants.

        A vpod that may get no place any more also loses what no pod can hold, and what
        it has published in a former pool. What only ledgers have, it got while it still might.
        ``failure``: what a plugin that failed has reported; no plugin is asked after that.
        """
        self.failure = failure
        self.kept = self._decided(self._published())
        if problem in _NOT_ALLOWED:
            self._drop_former_pool()
        # Keep slotsPerVReplica too. A changed one is taken over once the vpod can be decided.
        self.weight, self.amounts = self._size_of(self.kept)
        if problem in _NOT_ALLOWED:
            # It may keep what it has, but not more than a pod can hold. Otherwise another vpod
            # would have to go, or no ledger could cover it.
            self.kept = {
                name: fits for name, count in self.kept.items() if (fits := self._trim(name, count))
            }
            self._shrink_to(min(self.vpod.vreplicas, self._published()))
        else:
            self._shrink_to(self.vpod.vreplicas)
        left = self.vpod.vreplicas - sum(self.kept.values())
        decision = self._decision(self.vpod.vreplicas, max(0, left), problem)
        if problem is ConflictReason.POOL_NOT_FOUND:
            # What is placed stays (I4), but nobody looks after it. Report that even if nothing is
            # left over.
            story = decision.explanation._replace(
                reason=problem, detail=f"AdapterPool {self.pool.key} does not exist"
            )
            decision = decision._replace(explanation=story)
        return decision

    def _published(self) -> int:
        """The vreplicas that the vpod publishes."""
        return sum(claim.published for claim in self.pool.claims_of(self.key).values())

    def _shrink_to(self, most: int) -> None:
        surplus = sum(self.kept.values()) - most
        if surplus > 0:
            self._shrink(surplus)

    def _drop_former_pool(self) -> None:
        """Drop what the status names on pods that this pool's StatefulSet does not have: the vpod
        has published them in its former pool. This pool does not admit its namespace.
        """
        for name in [name for name in self.kept if self._is_lost(self.pool.pods[name])]:
            count = self.kept.pop(name)
            self._note(Step.DROPPED, name, count, "ordinal is gone", MoveReason.ORDINAL_GONE)

    def _give_up(self, problem: ConflictReason) -> Decision:
        """Keep and trim what is placed, and add nothing. Either no pod can hold one vreplica, or
        the pool cannot hold as many as the vpod needs together. If the pool only lacks a dimension,
        nothing is trimmed.
        """
        self._keep()
        self._shrink_to(self.vpod.vreplicas)
        left = self.vpod.vreplicas - sum(self.kept.values())
        if left > 0:
            self._hold_back(left)
        decision = self._decision(self.vpod.vreplicas, max(0, left), problem)
        decision = self._all_or_nothing(decision)
        pool = self.pool.adapter_pool
        if left > 0 and pool is not None and self.vpod.weight <= pool.slots_per_pod:
            # Not the slots, so pods that lack some would not explain it.
            detail = pool.misfit(self.vpod) or pool.misfit_together(self.vpod)
            story = decision.explanation._replace(refused=(), detail=detail)
            decision = decision._replace(explanation=story)
        return decision

    # -- 1. keep -----------------------------------------------------------------------------------

    def _keep(self) -> None:
        for name, count in self._start().items():
            pod = self.pool.pods[name]
            if self._is_lost(pod):
                self._note(Step.DROPPED, name, count, "ordinal is gone", MoveReason.ORDINAL_GONE)
            elif self.taken_back and pod.draining and pod.serving and not pod.abandoned:
                self.kept[name] = self._trim(name, count)
                self._note(Step.STAYS, name, self.kept[name], "no adapter was ready elsewhere")
            elif pod.leaving or self._is_emptied(pod):
                # What overcommits the pod may not wait there: a ledger beyond its slots can never
                # be written (I1).
                self.leaving[name] = self._trim(name, count)
            elif not pod.schedulable and not self.rules.keep_on_unavailable:
                self._note(
                    Step.DROPPED, name, count, pod.why_unschedulable(), MoveReason.RESCHEDULE
                )
            elif fitting := self._trim(name, count):
                self.kept[name] = fitting

    def _start(self) -> Mapping[str, int]:
        """What the decision starts from, without zeros."""
        claims = self.pool.claims_of(self.key)
        if not claims:  # most vpods that are decided are new
            return {}
        starts_from_decided = self.rules.start_from_decided or (
            # A move that waits for adapters is decided, and the status does not say so yet.
            self.hands_over and self.pool.is_reserved(self.key)
        )
        if starts_from_decided and not self.taken_back:
            return self._decided(self._most_wanted())
        # An object that callers ask for, too, may publish pods that its pool has forgotten.
        return {
            name: count for name, count in self.vpod.placements.items() if count and name in claims
        }

    def _decided(self, most: int) -> dict[str, int]:
        """What earlier decisions have placed, and what comes back of what they took away, up to
        ``most`` vreplicas in all.
        """
        placed = self.pool.decided_of(self.key)
        more = most - sum(placed.values())
        if more <= 0 or not self.rules.start_from_decided or self._may_be_in_hand_over(placed):
            return placed
        for name, count in self._coming_back(placed, more).items():
            placed[name] = placed.get(name, 0) + count
        return placed

    def _most_wanted(self) -> int:
        """``_wanted`` if there were enough pods."""
        most = self.vpod.vreplicas if self.vpod.deleting else self._minimum()
        return max(self.vpod.vreplicas, most)

    def _minimum(self) -> int:
        """minPodsPerVPod, as far as it may raise what the vpod asks for; else 0."""
        if (
            self.pool.adapter_pool is None
            or self.vpod.not_admitted is not None
            or (not self.vpod.vreplicas and self.rules.zero_means_none)
        ):
            return 0
        return self.pool.adapter_pool.min_pods_per_vpod

    def _may_be_in_hand_over(self, placed: Mapping[str, int]) -> bool:
        """Whether the vpod may wait for adapters: its pool hands shares over, and all that it asks
        for has its place. Then only minPodsPerVPod can want more. What came back for that would
        undo the move.
        """
        return self.hands_over and sum(placed.values()) >= self.vpod.vreplicas

    def _coming_back(self, placed: Mapping[str, int], more: int) -> dict[str, int]:
        """Pod name -> vreplicas that come back there.

        An earlier decision has taken vreplicas from these pods. The vpod wants ``more`` again, and
        its status still names them. If the vreplicas went to other pods, that would be a move
        without a reason (I4). Pods where they may stay come first. What the earlier decision has
        *moved* does not come back to a pod that it would have to leave again: its move would be
        reported twice. As each decision goes by the same order, those on the first pods have been
        moved (seed 620000113).
        """
        claims = self.pool.claims_of(self.key)
        not_moved = sum(claim.published for claim in claims.values()) - sum(placed.values())
        taken = {
            n: c.published - placed.get(n, 0)
            for n, c in claims.items()
            if c.published > placed.get(n, 0)
        }
        moved = max(0, sum(taken.values()) - not_moved)
        must_go = {name: self._must_go(name) for name in sorted(taken, key=placement_order)}
        is_member = {name: self.pool.is_member(self.pool.pods[name]) for name in must_go}
        # Those of pods that the StatefulSet still has have the first claim to a place elsewhere.
        for name in sorted(must_go, key=lambda name: not is_member[name]):
            if must_go[name]:
                of_these = min(moved, taken[name])
                taken[name] -= of_these
                moved -= of_these
        back: dict[str, int] = {}
        # First the pods where they may stay. Then the pods that the StatefulSet no longer has. Then
        # its pods that they would have to leave.
        for name in sorted(must_go, key=lambda name: (must_go[name], is_member[name])):
            most = min(more, not_moved) if must_go[name] else more
            if count := max(0, min(taken[name], most)):
                back[name] = count
            more, not_moved = more - count, not_moved - count
        return back

    def _must_go(self, name: str) -> bool:
        pod = self.pool.pods[name]
        if not self.pool.is_member(pod) or pod.leaving or self._is_emptied(pod):
            return True
        if not pod.schedulable and not self.rules.keep_on_unavailable:
            return True
        return self._too_many(name, pod.claims[self.key].decided.vreplicas + 1) > 0

    def _is_emptied(self, pod: PodClaims) -> bool:
        """Whether the vpod's vreplicas leave this closed pod so that the pool can shrink. They stay
        while they are served and might not be elsewhere.

        A pod's excuse (see ``availability``) does not count. Recordings do not have excuses, and a
        replay must decide the same.
        """
        if not (self.leave_closed and self.pool.is_closed(pod)):
            return False
        return not pod.serving or all(
            self.pool.by_ordinal[ordinal].serving for ordinal in bits(self.pool.room)
        )

    def _is_lost(self, pod: PodClaims) -> bool:
        """Whether an ordinal is gone and its pod no longer runs: what it held is nowhere."""
        return not (self.pool.is_member(pod) or pod.condemned)

    def _trim(self, name: str, count: int) -> int:
        cut = self._too_many(name, count)
        if cut:
            self._note(Step.TRIMMED, name, cut, "pod is overcommitted", MoveReason.OVERCOMMIT)
        return count - cut

    def _too_many(self, name: str, count: int) -> int:
        """How many of ``count`` vreplicas a pod cannot hold beside what it has of others. If only
        reservations overfill the pod, what is written counts: a reservation pushes nobody out (I4).
        """
        pod = self.pool.pods[name]
        weight = self.weight
        claim = pod.claims[self.key]
        # Count this vpod's share at its present weight: slotsPerVReplica may have changed since.
        over = pod.decided - claim.decided.slots + count * weight - pod.capacity
        if over > 0:
            over = pod.written_beside(self.key).get(SLOTS, 0) + count * weight - pod.capacity
        cut = min(count, -(-over // weight)) if over > 0 else 0
        if claim.ledger.vreplicas and claim.ledger.weight < weight:
            # It has become heavier. What another vpod is about to leave is not free yet: that vpod
            # takes it back if it cannot leave.
            own = max(claim.ledger.slots, pod.free + claim.held_slots)
            cut = max(cut, count - own // weight)
        if self.amounts and pod.capacities:
            cut = max(cut, count - self._fitting_amounts(pod, claim, count))
        return cut

    def _fitting_amounts(self, pod: PodClaims, claim: Claim, count: int) -> int:
        """How many of ``count`` vreplicas may stay on a pod by its dimensions, as in
        ``_too_many``.
        """
        placed, ledger = claim.decided, claim.ledger
        own = dict(times(placed.amounts, placed.vreplicas))
        written, held, each = (
            dict(times(ledger.amounts, ledger.vreplicas)),
            dict(claim.held_amounts),
            dict(self.amounts),
        )
        fitting = count
        for name, capacity in pod.capacities:
            if not (amount := each.get(name)):
                continue
            beside = pod.decided_amounts.get(name, 0) - own.get(name, 0)
            if beside + fitting * amount > capacity:
                beside = pod.written_beside(self.key).get(name, 0)
            fitting = min(fitting, max(0, capacity - beside) // amount)
            if ledger.vreplicas and dict(ledger.amounts).get(name, 0) < amount:
                free = capacity - pod.held_amounts.get(name, 0) + held.get(name, 0)
                fitting = min(fitting, max(written.get(name, 0), free) // amount)
        return max(0, fitting)

    # -- 2. how many are wanted --------------------------------------------------------------------

    def _wanted(self) -> int:
        vreplicas = self.vpod.vreplicas
        if self.vpod.deleting:  # it keeps what it has until it is gone, and gets no more
            return min(vreplicas, sum(self.kept.values()) + sum(self.leaving.values()))
        minimum = self._minimum()
        if minimum <= vreplicas:
            return vreplicas
        pods_used = sum(1 for count in self.kept.values() if count)
        # Pods in use count, so that no fewer are wanted while one of them restarts.
        return max(vreplicas, min(minimum, max(self.pool.schedulable_count(), pods_used)))

    # -- 3. too many -------------------------------------------------------------------------------

    def _shrink(self, surplus: int) -> None:
        # ``deschedulers`` are Knative's plugins that choose what a vpod gives up. They have nothing
        # to do with the loop in ``service.pools.descheduler``.
        if self.pool.profile.deschedulers and not self.failure:
            removed = shrink(self.pool, self.vpod, self.kept, surplus, self.pool.profile)
            for name in sorted(removed, key=placement_order):
                self.kept[name] -= removed[name]
                self._note(Step.REMOVED, name, removed[name], "fewer are wanted")
            return
        claims = self.pool.claims_of(self.key)
        for published in (False, True):
            for name in sorted(self.kept, key=placement_order, reverse=True):
                count = self.kept[name]
                spare = count if published else max(0, count - claims[name].published)
                if (cut := min(spare, surplus)) > 0:
                    surplus -= cut
                    self.kept[name] = count - cut
                    self._note(Step.REMOVED, name, cut, "fewer are wanted")

    # -- 4. too few --------------------------------------------------------------------------------

    def _fill(self, missing: int) -> int:
        """Place what is missing, and return what is left. What leaves a pod gets room first.
        Without room, it stays where it is and counts as placed, if the rules let it wait. Else
        ``_decision`` drops it.
        """
        if missing <= 0:
            return 0
        waits = self.rules.drain_waits_for_room or self.hands_over
        back = min(missing, sum(self.leaving.values())) if waits else 0
        left = self._grow(back) if back else 0
        if left:
            self._hold_back(left)
        return left + (self._grow(missing - back) if missing > back else 0)

    def _grow(self, missing: int) -> int:
        if self.rules.start_from_decided or self.pool.profile.has_plugins:
            room = self.pool.room_for(self.key)
        else:
            # Slots that the vpod has reserved, but does not start from, may be given to it again.
            room = room_once_left(self.pool, self.vpod, self._free())
        fresh = not self.kept and not self.pool.claims_of(self.key)
        free = self.pool.free_for(self.vpod) if fresh else self._free()
        given, left = grow(self.pool, self.vpod, self.kept, missing, free, room)
        self._add(given)
        return left

    def _add(self, given: Mapping[int, int]) -> None:
        by_ordinal, kept, steps = self.pool.by_ordinal, self.kept, self.steps
        for ordinal in sorted(given):
            name, count = by_ordinal[ordinal].name, given[ordinal]
            kept[name] = kept.get(name, 0) + count
            steps.append(added(name, count))

    def _free(self) -> Callable[[int], int]:
        """Free slots by ordinal, beside what is kept. The function follows changes of ``kept``. If
        ``kept`` becomes another mapping, ask for another function.
        """
        return free_beside(self.pool, self.vpod, self.kept, (self.weight, self.amounts))

    # -- 5. what stays where it should leave -------------------------------------------------------

    def _hold_back(self, left: int) -> None:
        for name in list(self.leaving):
            held = min(self.leaving[name], left)
            left -= held
            self.leaving[name] -= held
            if held:
                self.kept[name] = self.kept.get(name, 0) + held
                self._note(Step.HELD_BACK, name, held, self._why_leaving(name)[0])

    def _why_leaving(self, name: str) -> tuple[str, MoveReason]:
        pod = self.pool.pods[name]
        match reason := pod.why_leaving:
            case None:
                return "pod is being emptied", MoveReason.COMPACTION
            case MoveReason.ORDINAL_GONE:
                return "ordinal is gone", reason
            case MoveReason.DRAIN:
                return "pod is marked unschedulable", reason
            case MoveReason.RESCHEDULE:
                return "pod was not ready for too long", reason
            case _:
                return f"pod is {pod.why_unschedulable()}", reason

    # -- placing all vreplicas anew ----------------------------------------------------------------

    def _must_replace_all(self, wanted: int) -> bool:
        """Whether all vreplicas have to be placed anew, as with Knative's plugins."""
        profile, kept = self.pool.profile, sum(self.kept.values())
        if self.rules.grow_in_place or not profile.has_plugins or self.vpod.deleting:
            return False
        return kept < wanted or (kept > wanted and not profile.deschedulers)

    def _try_replacing_all(self, wanted: int) -> int:
        """Place all vreplicas anew. If not all find room, change nothing. Return how many have no
        place.
        """
        before, self.kept = self.kept, {}
        entries = [*before, *(name for name in self.vpod.placements if name in self.pool.pods)]
        placed, left = replace_all(self.pool, self.vpod, entries, wanted, self._free())
        if not left:
            self.kept = placed
            self.steps += steps_between(before, placed)
            return 0
        # Nothing changes. Even vreplicas that would have to leave in other cases stay.
        self.kept, self.leaving = dict(self._start()), {}
        self.weight, self.amounts = self._size_of(self.kept)
        self.steps = [
            Reasoning(Step.HELD_BACK, name, count, "not all find room")
            for name, count in self.kept.items()
        ]
        return left

    def _may_even_out(self) -> bool:
        """Whether all vreplicas may be placed anew if some find no room: only with EvenPodSpread.

        EvenPodSpread refuses pods that have more than others, and pods that have far fewer. After a
        pool has grown, neither the old nor the new pods can take the next vreplica, and no single
        move is allowed. Knative placed all its vreplicas anew.
        """
        filters = self.pool.profile.filters
        return not self.vpod.deleting and any(isinstance(one, EvenPodSpread) for one in filters)

    def _even_out(self, wanted: int, left: int) -> int:
        """Place all vreplicas anew, if more of them have a place then. Else change nothing. Return
        how many have none; ``left`` of them had none before.
        """
        grown, self.kept = self.kept, {}
        placed, fresh = replace_all(self.pool, self.vpod, list(grown), wanted, self._free())
        if fresh >= left or (fresh and self.leaving):
            self.kept = grown
            return left
        self.kept, self.leaving = placed, {}
        self.steps = list(steps_between(self._start(), placed))
        return fresh

    def _size_of(self, names: Iterable[str]) -> tuple[int, Amounts]:
        """slotsPerVReplica and perVReplica as they were when those vreplicas were placed. If these
        differ, the least of them: what is kept must not need more than it has.
        """
        claims = self.pool.claims_of(self.key)
        return min(
            (
                (claims[name].decided.weight, claims[name].decided.amounts)
                for name in names
                if name in claims
            ),
            default=(self.weight, self.amounts),
        )

    # -- the outcome -------------------------------------------------------------------------------

    def _all_or_nothing(self, decision: Decision) -> Decision:
        """The decision, if the vpod then has as many vreplicas as it needs together. If not, it has
        none, and gives back what it has.

        It holds nothing while it waits. So of two vpods that wait for each other, one is placed. A
        vpod that needs more together than before keeps what it publishes, and grows as others do.
        """
        if self.vpod.min_available <= 1 or self.vpod.deleting:
            return decision
        have = decision.scheduled
        if not 0 < have < self.vpod.least:
            return decision
        if have >= self._published() > 0:
            return decision
        lost = [step for step in decision.explanation.steps if step.step in _LOST]
        rest = Counter(self._start())
        for step in lost:
            rest[step.pod_name] -= step.vreplicas
        steps = (
            *lost,
            *(
                Reasoning(Step.REMOVED, name, count, "too few without the others")
                for name, count in (+rest).items()
            ),
        )
        wanted = decision.explanation.wanted
        story = decision.explanation._replace(
            steps=steps,
            pending=wanted,
            reason=decision.explanation.reason or ConflictReason.INSUFFICIENT_SLOTS,
            detail=f"minAvailable is {self.vpod.min_available}, and only {have} have room",
        )
        return decision._replace(target={}, pending=wanted, explanation=story)

    def _note(
        self, step: Step, name: str, count: int, why: str = "", reason: MoveReason | None = None
    ) -> None:
        self.steps.append(Reasoning(step, name, count, why, reason))

    def _decision(self, wanted: int, left: int, reason: ConflictReason) -> Decision:
        for name, count in self.leaving.items():
            if count:
                self._note(Step.DROPPED, name, count, *self._why_leaving(name))
        target = {
            name: self.kept[name]
            for name in sorted(self.kept, key=placement_order)
            if self.kept[name]
        }
        refused: tuple[tuple[str, int], ...] = ()
        if left and not self.failure:
            refused = why_refused(self.pool, self.vpod, self.kept, self._free())
            reason = reason_for(refused) if reason is ConflictReason.INSUFFICIENT_SLOTS else reason
        explanation = Explanation(
            wanted,
            tuple(self.steps),
            left,
            reason if left else None,
            refused,
            self.failure,
            self.vpod.not_admitted,
        )
        return Decision(
            self.key,
            self.pool.key,
            target,
            self.weight,
            left,
            explanation,
            (self.vpod.uid, self.vpod.generation),
            self.pool.next_start_ordinal,
            self.amounts,
        )
