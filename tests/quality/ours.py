"""``Ours``: what the engine does with an instance, in virtual time. Everything that is measured
calls the engine here, and nowhere else.

It works as the leader does. A batch of vpods is decided in order of arrival, and each decision is
reserved before the next one. Then the batch is written. The autoscaler adds pods if some wait. Once
in each period the pool is closed, moved and shrunk within the budget of a default pool. New pods
find their nodes as in ``extender.whatif.growth``: by filter and prioritize.

A new step of the engine has its place in ``bring_up`` (what happens at once) or in ``_period``
(what happens once in ``scaleDownPeriodSeconds``), as the moves that make room do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from extender.engine.placing.burst import best_of, may_fit_better
from extender.engine.placing.plan import Decision, release_all
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import SWAPS_TRIED_MAX, Advice, plan_moves
from extender.engine.rebalance.relocation import relocations
from extender.engine.scaling.scale_down import (
    count_without_empty,
    ordinals_to_close,
    waits_for_closed,
)
from extender.engine.scaling.size import anyone, plan_scale, waiting_without_growth
from extender.engine.state.cluster_state import ClusterState
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod
from extender.service.placing.queue import BURST_S
from extender.service.pools.pool_moves import PoolMoves
from extender.whatif.growth import add_pods
from extender.whatif.settling import commit
from extender.whatif.trial import Trial
from tests.quality.instances import SLOTS, ZONES, Ask
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.placing import place

NODES_PER_ZONE: Final = 4
PERIODS_MAX: Final = 500
"""Periods after which a pool that still changes is given up."""


class Unsettled(Exception):
    """The pool still changes after ``PERIODS_MAX`` periods."""


class Ours:
    """A pool under ``profile``. ``zone_of_pod``: pods that are there from the beginning.
    ``max_pods``: None for no limit.
    """

    def __init__(
        self, profile: str, zone_of_pod: Sequence[str] = (), *, max_pods: int | None = None
    ) -> None:
        self.state = ClusterState()
        for zone in ZONES:
            for number in range(NODES_PER_ZONE):
                node = a_node(f"{zone}{number}", zone)
                self.state.node_changed(None, node)
        stateful_set = a_stateful_set(len(zone_of_pod))
        self.state.stateful_set_changed(None, stateful_set)
        self.state.adapter_pool_changed(None, a_pool(SLOTS, max_pods=max_pods, profile=profile))
        self.pool = self.state.pool(POOL)
        self.pool.set_profile(BUILT_IN_PROFILES[profile])
        for ordinal, zone in enumerate(zone_of_pod):
            on = f"{zone}{ordinal % NODES_PER_ZONE}"
            pod = a_pod(ordinal, {}, node=on, ready=True, slots=SLOTS)
            self.state.pod_changed(None, pod)
        self.now_s = 0.0
        self.moves: list[Move] = []
        """All moves of placed vreplicas so far."""
        self._came: dict[str, int] = {}
        """Key of a vpod -> the burst in which it came."""
        self._moved_at: dict[str, float] = {}
        self._evictor = PoolMoves()
        self._looks = 0

    # -- what happens to the pool ------------------------------------------------------------------

    def arrive(self, asks: Iterable[Ask]) -> None:
        """Vpods come in one batch."""
        for ask in asks:
            vpod = a_vpod(ask.name, ask.vreplicas, weight=ask.weight)
            self._came[vpod.key] = int(self.now_s // BURST_S)
            self.state.vpod_changed(None, vpod)

    def delete(self, names: Iterable[str]) -> None:
        """These vpods go, and what they held is free."""
        for name in names:
            vpod = self.pool.vpods[f"tenant/{name}"]
            commit(self.state, self.pool, [release_all(self.pool, vpod.key)])
            self.state.vpod_changed(vpod, None)

    def bring_up(self) -> None:
        """Place what waits and add pods, in turn, until nothing changes."""
        self._place()
        while self.waiting and self._grow():
            self._place()

    def fix_pods(self) -> None:
        """From now on the pool keeps the number of pods that it has."""
        spec = self.pool.adapter_pool
        assert spec is not None
        self.state.adapter_pool_changed(spec, replace(spec, min_pods=self.pods))

    def settle(self, *, until_placed: bool = False) -> None:
        """Let periods pass until nothing has changed for longer than the cool-down, or, if
        ``until_placed``, until nothing waits. Raises Unsettled.
        """
        spec = self.pool.adapter_pool
        assert spec is not None
        quiet_s = 0
        for _ in range(PERIODS_MAX):
            if until_placed and not self.waiting:
                return
            quiet_s = 0 if self._period() else quiet_s + spec.scale_down_period_s
            self.now_s += spec.scale_down_period_s
            if quiet_s > spec.move_cooldown_s:
                return
        raise Unsettled(f"{PERIODS_MAX} periods")

    # -- what is measured --------------------------------------------------------------------------

    @property
    def pods(self) -> int:
        """Pods of the StatefulSet."""
        return self.pool.stateful_set.replicas if self.pool.stateful_set is not None else 0

    @property
    def waiting(self) -> int:
        """Vreplicas without a place."""
        vpods = self.pool.vpods.values()
        return sum(vpod.vreplicas - self.pool.decided_vreplicas(vpod.key) for vpod in vpods)

    @property
    def moved(self) -> int:
        """Vreplicas that were moved so far, but not because the profile prefers another pod."""
        return sum(move.vreplicas for move in self.moves if move.reason is not MoveReason.POLICY)

    @property
    def placed(self) -> dict[str, dict[int, int]]:
        """Name of a vpod -> ordinal -> vreplicas."""
        return {
            vpod.name: {
                ordinal: count
                for name, count in self.pool.decided_of(vpod.key).items()
                if (ordinal := self.pool.pods[name].ordinal) is not None
            }
            for vpod in self.pool.vpods.values()
        }

    @property
    def zone_of_pod(self) -> tuple[str, ...]:
        """The zone of each ordinal."""
        pods = (self.pool.by_ordinal[ordinal] for ordinal in range(self.pods))
        return tuple(pod.node.zone if pod.node is not None else "" for pod in pods)

    # -- the engine's steps ------------------------------------------------------------------------

    def _place(self) -> bool:
        """Decide the vpods that wait, as one batch, in the best of some orders. Return whether
        anything has changed.
        """
        decisions = found = self._reserve(vpod.key for vpod in self._batch())
        if may_fit_better(self.pool, decisions):
            found = best_of(self.pool, decisions, self._reserve, self._release, ages=self._came)
            self._reserve(one.vpod for one in found)
        changed = [
            one for one in found if dict(one.target) != self._published(self.pool.vpods[one.vpod])
        ]
        self.moves += [move for one in changed for move in one.moves]
        commit(self.state, self.pool, found)
        return bool(changed)

    def _reserve(self, keys: Iterable[str]) -> list[Decision]:
        """Decide vpods, and reserve each decision before the next one is made."""
        made: list[Decision] = []
        for key in keys:
            decision = place(self.pool, self.pool.vpods[key])
            shares = decision.shares(self.pool.decided_of(key))
            self.pool.reserve(self, key, shares, expires_at=float("inf"))
            made.append(decision)
        return made

    def _release(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.pool.release(self, key)

    @staticmethod
    def _published(vpod: VPod) -> dict[str, int]:
        return {name: count for name, count in vpod.placements.items() if count}

    def _batch(self) -> list[VPod]:
        """The vpods that wait, in the order in which they are decided: burst by burst the heaviest
        first, then that of their arrival.
        """
        vpods = sorted(
            self.pool.vpods.values(), key=lambda vpod: (self._came[vpod.key], -vpod.weight)
        )
        return [vpod for vpod in vpods if self.pool.decided_vreplicas(vpod.key) < vpod.vreplicas]

    def _grow(self) -> bool:
        """Add the pods that the autoscaler's plan asks for."""
        plan = plan_scale(self.pool)
        if plan is None or plan.wanted <= self.pods:
            return False
        return bool(add_pods(Trial(self.state), self.pool, plan.wanted - self.pods))

    def _period(self) -> bool:
        """One period of the autoscaler and of the evictor. Return whether anything has changed."""
        changed = self._close()
        changed = self._move() or changed
        changed = self._shrink() or changed
        changed = self._place() or changed
        if self.waiting:
            changed = self._grow() or changed
        return changed

    def _close(self) -> bool:
        """Close the pods that are not needed. Open all if one of them is the only room for what
        waits.
        """
        plan, before = plan_scale(self.pool), self.pool.closed
        assert plan is not None
        waits = None if plan.cannot_grow else waits_for_closed(self.pool)
        if waits is not None and waits[1]:
            self.pool.set_closed(0)
        else:
            self.pool.set_closed(ordinals_to_close(self.pool, plan))
        return self.pool.closed != before

    def _move(self) -> bool:
        """Plan the moves of a period within the pool's budget and cool-down, and make them."""
        spec = self.pool.adapter_pool
        assert spec is not None
        self._evictor.begin_look()
        left_behind = self._evictor.left_behind
        left_behind.look(self.pool)
        plan = plan_scale(self.pool)
        limits = Limits(
            budget=spec.moves_per_period,
            cooling=lambda key: self.now_s - self._moved_at.get(key, -1e9) < spec.move_cooldown_s,
        )
        waiting = waiting_without_growth(self.pool, anyone, plan) if plan is not None else []
        advice = Advice(
            returns=lambda key, there: left_behind.returns(self.pool.vpods[key], there),
            vpods=self._in_turn() if self.pool.profile.has_plugins else [],
            waiting=self._evictor.in_turn(waiting),
        )
        made = self._carry_out(plan_moves(self.pool, limits, advice))
        self.moves += made
        return bool(made)

    def _in_turn(self) -> list[str]:
        """All vpods, each time from others on, as the evictor passes them."""
        keys = list(self.pool.vpods)
        start = self._looks * SWAPS_TRIED_MAX % max(1, len(keys))
        self._looks += 1
        return [*keys[start:], *keys[:start]]

    def _carry_out(self, moves: Sequence[Move]) -> list[Move]:
        made: list[Move] = []
        for decision in relocations(self.pool, moves):
            self._evictor.left_behind.leave(
                self.pool.vpods[decision.vpod], self.pool.decided_of(decision.vpod)
            )
            commit(self.state, self.pool, [decision])
            self._moved_at[decision.vpod] = self.now_s
            made += decision.moves
        return made

    def _shrink(self) -> bool:
        """Remove the highest pods that are closed and empty."""
        stateful_set, count = self.pool.stateful_set, count_without_empty(self.pool, self.state)
        assert stateful_set is not None
        if count >= stateful_set.replicas:
            return False
        self.state.stateful_set_changed(stateful_set, replace(stateful_set, replicas=count))
        for ordinal in range(count, stateful_set.replicas):
            known = self.pool.by_ordinal.get(ordinal)
            if known is not None and known.pod is not None:
                self.state.pod_changed(known.pod, None)
        self.pool.set_closed(self.pool.closed & ((1 << count) - 1))
        return True
