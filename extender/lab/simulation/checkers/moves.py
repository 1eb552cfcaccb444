"""I4: what leaves a pod has a reason that is reported and that the store confirms. Moves that can
wait keep to their limits.
"""

from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from extender.engine.state.availability import EXCUSED_S
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.budgets import WRITE_S, Budgets
from extender.lab.simulation.checkers.context import Checker, CheckerContext
from extender.lab.simulation.checkers.evenness import EVEN, allocated, is_better
from extender.lab.simulation.checkers.presence import ROUNDED_S, Presence
from extender.lab.simulation.checkers.tenancy import TenancyChecker
from extender.lab.simulation.world.configuration import LEAST_ALLOCATED
from extender.lab.simulation.world.facts import (
    REPORT_CHARS_MAX,
    Pod,
    Pool,
    ReportedMove,
    VPod,
    in_force,
    ordinal_of,
)
from extender.lab.simulation.world.scale import pool_of, second_name
from extender.model.timestamps import epoch_s

SPREADING: Final = frozenset({"pack", *EVEN, *LEAST_ALLOCATED})
"""Profiles that may prefer another pod to the present one."""
UNASKED: Final = ("Compaction", "MakeRoom", "Load", "Policy")
"""Reasons of moves that nobody has requested, and that can wait."""
STILL_SERVES_S: Final = EXCUSED_S + 2.0
"""For so long a pod that is no longer Ready may still count as Ready: while the service excuses it,
and for a margin in which the service collects changes.
"""
OF_CALLERS: Final = (
    "Drain",
    "Evicted",
    "Rollout",
    "Maintenance",
    "OrdinalGone",
    "Overcommit",
    "Reschedule",
    "Compaction",
)
"""The reasons that may take a vreplica of a caller off a pod. Policy never moves those."""


def _taken_off(old: VPod, new: VPod) -> Iterator[tuple[str, int]]:
    """Yield each pod that loses vreplicas of the vpod, and how many."""
    for name, count in old.placements.items():
        if (taken := count - new.placements.get(name, 0)) > 0:
            yield name, taken


class MoveChecker(Checker):
    """Checks statuses when they are written. ``made`` counts moved vreplicas by reason."""

    def __init__(self, context: CheckerContext, budgets: Budgets, tenancy: TenancyChecker) -> None:
        super().__init__(context)
        self._tenancy = tenancy
        self._late_s = context.circumstances.late_s
        self.presence = Presence(context.excuses.clock)
        self._nodes: dict[str, tuple[str, float]] = {}
        """Pod name -> (the node where it runs or last ran, since when)."""
        self._seen: dict[str, tuple[str, float]] = {}
        """Pod name -> (UID of the last bound pod of that name, since when it is bound)."""
        self._pods_seen: dict[str, list[tuple[float, Pod]]] = {}
        """Pod name -> (since when, the pod as it was bound)."""
        self._failed_at = context.circumstances.failed_at
        self._budgets = budgets
        self._now_of = context.circumstances.now_of
        self.made: dict[str, int] = {}

    def check(self, old: VPod, new: VPod, *, was_edited: bool) -> None:
        """Check that what leaves a pod has a reported reason that is true, or that the vpod has
        more vreplicas than it wants.
        """
        reported_before = new.moved == old.moved
        # Two moves within one second may be reported in the same words. A write may be under way
        # for at most WRITE_S.
        fresh = (
            not reported_before
            or abs(epoch_s(new.moved[2], 0.0) - self._now_of(ACTOR.get())) <= WRITE_S
        )
        reported = new.reported_moves if fresh else []
        cut = fresh and len(new.moved[1]) >= REPORT_CHARS_MAX
        excused = cut or was_edited or self._excuses.holds(f"weight {new.key}")
        made: list[ReportedMove] = []
        surplus = self._may_leave(old, new)
        for name, taken in _taken_off(old, new):
            moves = [move for move in reported if move.from_pod == name]
            # A new report counts first, and the rest may be surplus. If the report is an old one,
            # surplus vreplicas count first.
            by_report = 0 if reported_before else sum(move.vreplicas for move in moves)
            unwanted = min(surplus, max(0, taken - by_report))
            surplus, left = surplus - unwanted, taken - unwanted
            if not left:
                continue
            for move in moves:
                made.append(move._replace(vreplicas=min(left, move.vreplicas)))
                left -= made[-1].vreplicas
                self._check_reported(move, made[-1].vreplicas, old, new, was_edited=was_edited)
            if left and not excused:
                self._violated(
                    f"I4: {ACTOR.get()} took {left} of {new.key} (wants {new.wanted}) off {name} "
                    f"and told no "
                    f"reason: {dict(old.placements)} became {dict(new.placements)}, {new.moved}"
                )
        if not excused and old.total == new.total:
            self._check_better(old, new, made)
        pool = self._stored.pool_of(new)
        self._budgets.placed(pool, self._placed_in(pool))
        if reported_before:
            return
        for problem in self._budgets.problems(ACTOR.get(), pool, old, new, made):
            self._violated(f"I4: {problem}")

    def _may_leave(self, old: VPod, new: VPod) -> int:
        """Return how many vreplicas may leave pods without another reason."""
        if new.least > 1 and not new.total:
            return old.total  # it gives back what is too little without the others
        surplus = max(0, old.total - new.wanted)
        if new.total < old.total and self._tenancy.may_lose(new):
            return max(surplus, old.total - new.total)
        return surplus

    def _placed_in(self, pool: Pool) -> int:
        """Return the vreplicas in the ledgers of the pool's pods, or published on them."""
        found = 0
        published: dict[str, dict[str, int]] = {name: {} for name in self._stored.pods}
        for key, vpod in self._stored.vpods.items():
            for name, count in vpod.placements.items():
                published.setdefault(name, {})[key] = count
        for name, counts in published.items():
            if pool_of(name) == pool.name:
                held = self._coverage_excuses.held(name)
                found += sum(
                    max(held.get(key, (0, 1))[0], counts.get(key, 0)) for key in {*held, *counts}
                )
        return found

    def _check_reported(
        self, move: ReportedMove, vreplicas: int, old: VPod, new: VPod, *, was_edited: bool
    ) -> None:
        """Check a reported move of ``vreplicas`` that have left a pod."""
        self.made[move.reason] = self.made.get(move.reason, 0) + vreplicas
        if not self._holds(move, new, was_edited=was_edited):
            self._violated(f"I4: {new.key} was moved, and {move} is not why")
        if self._gave_up_what_runs(move, new):
            self._violated(f"I4: {move} has {new.key} nowhere, and {move.from_pod} still runs")
        if move.reason in UNASKED and self._ends_service(move, old, new):
            self._violated(
                f"I4: {move} has {new.key} served by nobody: {move.to_pod} was not Ready"
            )

    def _holds(self, move: ReportedMove, vpod: VPod, *, was_edited: bool) -> bool:
        """Return whether a move's reason is true, or was when it may have been decided."""
        name, holds = move.from_pod, self._excuses.holds
        pool, pod = self._stored.pool_of(vpod), self._stored.pods.get(move.from_pod)
        if holds(f"pool {vpod.key}"):
            # The vpod's former pool may have decided the move before the vpod left it.
            pool = self._stored.pools.get(pool_of(name), pool)
        moving = not pool.dry_run or holds(f"moving {pool.name}")
        by_reason: dict[str, bool] = {
            "Drain": (pod is not None and pod.marked) or holds(f"marked {name}"),
            "Evicted": (pod is not None and pod.evicting) or holds(f"evicted {name}"),
            "Rollout": (pod is not None and pod.evicting) or holds(f"evicted {name}"),
            "Maintenance": (pod is not None and pod.evicting) or holds(f"evicted {name}"),
            "OrdinalGone": name not in pool.names
            or holds(f"gone {name}")
            or holds(f"pool {vpod.key}"),
            "Overcommit": (
                self._edited_records.was_ledger_wrong(name)
                or was_edited
                or holds(f"weight {vpod.key}")
                or holds(f"slots {pool_of(name)}")
            ),
            "Reschedule": self._was_absent(name, pool),
            "Compaction": moving and ordinal_of(move.to_pod) < ordinal_of(name),
            "MakeRoom": moving and (name in pool.names or holds(f"gone {name}")),
            "Load": moving and (pool.balances_load or holds(f"load {pool.name}")),
            "Policy": moving and (pool.profile in SPREADING or holds(f"profile {pool.name}")),
        }
        return by_reason.get(move.reason, False)

    def check_unreported_moves(
        self, old: VPod, new: VPod, is_excused: Callable[[str], bool]
    ) -> str:
        """As ``check``, for the vpods of callers, whose moves are not reported: each vreplica that
        leaves a pod has some true reason, or is more than the vpod wants. Return a description of
        the problem, "" if there is none.

        ``is_excused``: pod name -> whether the pod needs no reason.
        """
        surplus = self._may_leave(old, new)
        gained = (
            name for name, count in new.placements.items() if count > old.placements.get(name, 0)
        )
        to = max(gained, key=ordinal_of, default="")
        for name, taken in _taken_off(old, new):
            unwanted = min(taken, surplus)
            surplus, left = surplus - unwanted, taken - unwanted
            if not left or is_excused(name):
                continue
            if not any(
                self._holds(ReportedMove(1, name, to, why), new, was_edited=False)
                for why in OF_CALLERS
            ):
                return (
                    f"took {left} of {new.key} (wants {new.wanted}) off {name} for no reason: "
                    f"{dict(old.placements)} became {dict(new.placements)}"
                )
        return ""

    def pod_seen(self, pod: Pod) -> None:
        """A pod was written."""
        self.presence.pod_seen(pod)
        if pod.node:
            self._pods_seen.setdefault(pod.name, []).append((self._clock(), pod))
        uid, _ = self._seen.get(pod.name, ("", inf))
        if pod.node and pod.uid != uid:
            self._seen[pod.name] = (pod.uid, self._clock())
        node, _ = self._nodes.get(pod.name, ("", -inf))
        if pod.node and pod.node != node:
            self._nodes[pod.name] = (pod.node, self._clock() if node else -inf)

    def _was_absent(self, name: str, pool: Pool) -> bool:
        """Return whether the leader that decided may have seen the pod not Ready for too long."""
        since = self._clock() - self._late_s
        absent_s = self.presence.longest(name, since)
        limit_s = min(in_force(pool.limits_seen, since), default=0.0)
        return absent_s >= 0.0 and limit_s < inf and absent_s + self._late_s + ROUNDED_S >= limit_s

    def _ends_service(self, move: ReportedMove, old: VPod, new: VPod) -> bool:
        """Return whether the leader that decided must have seen, even with a late view, that the
        move goes from a pod that serves to one that does not.

        If adapters hand a move over, the pod where it goes may have been published before: the vpod
        has grown meanwhile. It may have gone down since. ``HandoverChecker`` looks at that.
        """
        pool, to = self._stored.pool(pool_of(move.from_pod)), move.to_pod
        if pool.hands_over and new.placements.get(to, 0) <= old.placements.get(to, 0):
            return False
        since = self._clock() - self._late_s
        return self.presence.was_there(move.from_pod, since) and self.presence.is_down(
            move.to_pod, since - STILL_SERVES_S - ROUNDED_S
        )

    def _gave_up_what_runs(self, move: ReportedMove, vpod: VPod) -> bool:
        """Return whether vreplicas without another place have left a running pod that has lost its
        ordinal. They should wait there, as on a drained pod.

        Only one pool can decide about the ordinals. If two pools name the StatefulSet, or the vpod
        has just changed its pool, nothing is checked.
        """
        pod = self._stored.pods.get(move.from_pod)
        if move.reason != "OrdinalGone" or move.to_pod or vpod.total >= vpod.wanted or pod is None:
            return False
        two = second_name(pod.pool) in self._stored.pools
        came = pod.pool != vpod.pool or self._excuses.holds(f"pool {vpod.key}")
        return (
            bool(pod.node)
            and not pod.finished
            and not two
            and not came
            and self._seen[pod.name][1] < self._clock() - self._late_s
        )

    def _check_better(self, old: VPod, new: VPod, made: list[ReportedMove]) -> None:
        """Check that a move by policy is an improvement, if nothing else has changed."""
        pool = self._stored.pool_of(new)
        if not made or {move.reason for move in made} != {"Policy"}:
            return
        since = self._clock() - self._late_s
        if self._excuses.holds(f"profile {pool.name}") or any(
            self._nodes.get(name, ("", inf))[1] > since
            for name in {*old.placements, *new.placements}
        ):
            # It may have been decided for another profile, or while pods ran on other nodes.
            return
        if self._is_partial(new):
            return
        if (dimension := LEAST_ALLOCATED.get(pool.profile)) is not None:
            self._check_emptier(pool, new, made, dimension)
        elif not is_better(pool.profile, made, (old.placements, new.placements), self._place_of):
            self._violated(
                f"I4: {ACTOR.get()} moved {new.key} by policy {pool.profile}, which is no better "
                f"for it: {dict(old.placements)} became {dict(new.placements)}"
            )

    def _is_partial(self, vpod: VPod) -> bool:
        """Return whether the status may lack a part of what was decided, because the ledger of a
        pod was not written (seed 590001701).
        """
        since = self._clock() - WRITE_S
        return any(
            pool_of(name) == vpod.pool and self._failed_at(ACTOR.get(), "pods", name) >= since
            for name in self._stored.pods
        )

    def _check_emptier(
        self, pool: Pool, vpod: VPod, made: list[ReportedMove], dimension: str
    ) -> None:
        """Check that a move by ``LeastAllocated`` goes to a pod that is emptier than the other one.
        Decisions see reservations that no ledger has. So only a pod that has been the fuller one
        all the time is a problem, if no write of either failed.
        """
        since = self._excuses.since()
        if self._excuses.holds(f"slots {pool.name}"):
            return
        for move in made:
            names = (move.from_pod, move.to_pod)
            if any(self._failed_at(ACTOR.get(), "pods", name) >= since for name in names):
                continue
            left, reached = (
                [
                    allocated(pool, pod, dimension)
                    for pod in in_force(self._pods_seen.get(name, []), since)
                ]
                for name in names
            )
            if left and reached and min(reached) >= max(left):
                self._violated(
                    f"I4: {ACTOR.get()} moved {vpod.key} by policy {pool.profile} from a pod that "
                    f"is {max(left):.0%} full to one that is {min(reached):.0%} full: {move}"
                )

    def _place_of(self, pod_name: str) -> tuple[str, str]:
        node, _ = self._nodes.get(pod_name, ("", 0.0))
        return self._stored.zone_of.get(node, ""), node
