"""What callers of ``/v1/schedule`` publish: covered (I2), moved for a reason only (I4), and
answered honestly.

A caller's vpod is among the stored ones, so whatever is checked of all vpods is checked of it. It
is no object: no status tells its moves, so the causes of what leaves a pod are looked up without
being told; and where a replica binds a pod whose last one it has not seen, what callers had there
is in their own statuses only, until they ask again (docs/python-api.md). That alone excuses more
than for VPods, unless it is the replica that has answered, and has led since.
"""

from dataclasses import replace
from math import inf
from typing import Final

from extender.lab.simulation.checkers.known import Known
from extender.lab.simulation.checkers.moves import MoveChecker
from extender.lab.simulation.world.facts import Pod, VPod

ASKS_AGAIN_S: Final = 130.0
"""A caller comes back sooner than that, whatever its answer was."""
REMEMBERED_S: Final = 19.0
"""What the last pod of an ordinal held may be forgotten once the ordinal has been gone for so long,
and a second.
"""


class CallerChecks:
    """A ``CallerWatcher`` that is told of pods, too."""

    def __init__(self, known: Known, moves: MoveChecker) -> None:
        self._stored = known.stored
        self._clock = known.excuses.clock
        self._broken = known.broken
        self._uncovering = known.uncovering
        self._moves = moves
        self._two_lead = known.circumstances.two_lead
        self._listed_at = known.circumstances.listed_at
        self._violated = known.violated
        self._answered: dict[str, tuple[str, float]] = {}
        """Vpod -> (the replica that it last heard of, when)."""
        self.led_since = -inf
        """When a Lease has last changed hands."""
        self._bound_at: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        self._left_at: dict[str, float] = {}
        """Pod name -> when a pod was bound, when it was gone, and when its ordinal was."""

    # -- what callers do ---------------------------------------------------------------------------

    def wished(self, old: VPod | None, new: VPod | None) -> None:
        """A caller comes, wants something else, or has begun to give all back."""
        if new is None:
            if old is not None:
                self._stored.vpods.pop(old.key, None)
                self._answered.pop(old.key, None)
            return
        self._stored.vpods[new.key] = new
        self._broken.weighed(old, new)

    def answered(self, asked: VPod, new: VPod, by: str) -> None:
        """It publishes an answer."""
        self._stored.vpods[new.key] = new
        self._answered[new.key] = (by, self._clock())
        if self._two_lead():
            for name in new.placements:
                self._uncovering.all_of(name)
            return
        answer = replace(new, wanted=asked.wanted)
        if wrong := self._moves.check_untold(
            asked, answer, lambda name: self._uncovering.excuses(name, new.key)
        ):
            self._violated(f"I4: {by} {wrong}")
        for name, count in asked.placements.items():
            pod = self._stored.pods.get(name)
            # It may go on publishing what it has asked with, and weighs that as it does now, until
            # it asks again.
            if (
                pod is not None
                and pod.slots
                and pod.beside(new.key) + count * asked.weight > pod.slots
            ):
                self._broken.excuse_ledger(name, ASKS_AGAIN_S)
        left = new.condition[0] != "True"
        if not left and new.total < asked.wanted:
            self._violated(
                f"{by} told {new.key} that all {asked.wanted} are placed: {dict(new.placements)}"
            )
        for name, count in new.placements.items():
            pod = self._stored.pods.get(name)
            if pod is None or not pod.node or pod.count(new.key) >= count:
                continue
            if self._uncovering.excuses(name, new.key):
                self._uncovering.published(name, new.key)
            else:
                self._violated(
                    f"I2: {by} answered {new.key} {dict(new.placements)}, ledger of {name} has "
                    f"{pod.text}"
                )

    # -- what may be forgotten ---------------------------------------------------------------------

    def leader_changed(self) -> None:
        """Whoever leads now knows of no caller."""
        self.led_since = self._clock()

    def ordinal_gone(self, name: str) -> None:
        """The StatefulSet has it no longer."""
        self._left_at[name] = self._clock()

    def pod_gone(self, name: str) -> None:
        """A pod was removed."""
        self._gone_at[name] = self._clock()

    def bound(self, pod: Pod, actor: str) -> None:
        """A replica has bound a pod: what of callers it may not know of, and so not have
        given it.
        """
        forgotten = self._may_have_forgotten(pod.name, actor)
        self._bound_at[pod.name] = self._clock()
        if not forgotten:
            return
        for key, vpod in self._stored.vpods.items():
            if not vpod.by_caller or self._knows(actor, key):
                continue
            had = self._uncovering.held(pod.name).get(key, (0, 1))[0]
            if max(had, vpod.placements.get(pod.name, 0)) > pod.count(key):
                self._uncovering.forgotten(pod.name, key)

    def _may_have_forgotten(self, name: str, actor: str) -> bool:
        gone_at = self._gone_at.get(name, -inf)
        has_left = self._left_at.get(name, -inf) > self._bound_at.get(name, -inf)
        return self._listed_at(actor) >= gone_at or (
            has_left and self._clock() - gone_at >= REMEMBERED_S
        )

    def _knows(self, actor: str, key: str) -> bool:
        """Whether it has answered this caller last, and has led since."""
        by, at = self._answered.get(key, ("", -inf))
        return by == actor and at > self.led_since
