"""Checks of callers of ``/v1/schedule``: their placements are covered (I2), they are moved only for
a reason (I4), and the answers are true.

The vpod of a caller is kept with the stored ones, so it gets all checks of vpods. It is no object
of the API, which makes two differences. No status reports its moves, so the checkers look up the
causes themselves. And if a replica binds a pod whose predecessor it has not seen, only the callers
know what they had there, until they ask again (docs/python-api.md). So more is excused than for
VPods, unless the replica that binds answered the caller last and has led since.
"""

from dataclasses import replace
from math import inf
from typing import Final

from extender.lab.simulation.checkers.context import Checker, CheckerContext
from extender.lab.simulation.checkers.moves import MoveChecker
from extender.lab.simulation.world.facts import Pod, VPod

ASKS_AGAIN_S: Final = 130.0
"""A caller asks again within this time, whatever the answer was."""
REMEMBERED_S: Final = 19.0
"""A replica may forget what an ordinal's last pod held 20 s after the ordinal is gone. This is 1 s
less, as tolerance.
"""


class CallerChecks(Checker):
    """A ``CallerWatcher`` that also watches pods."""

    def __init__(self, context: CheckerContext, moves: MoveChecker) -> None:
        super().__init__(context)
        self._moves = moves
        self._listed_at = context.circumstances.listed_at
        self._answered: dict[str, tuple[str, float]] = {}
        """Vpod -> (the replica that answered it last, when)."""
        self.led_since = -inf
        """When a Lease last changed its holder."""
        self._bound_at: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        self._left_at: dict[str, float] = {}
        """Pod name -> when a pod was bound, when it was gone, and when its ordinal was gone."""

    # -- what callers do ---------------------------------------------------------------------------

    def wished(self, old: VPod | None, new: VPod | None) -> None:
        """A caller comes, wants something else, or begins to give everything back."""
        if new is None:
            if old is not None:
                self._stored.vpods.pop(old.key, None)
                self._answered.pop(old.key, None)
            return
        self._stored.vpods[new.key] = new
        self._stored.amounts[new.key] = new.amounts
        self._edited_records.weighed(old, new)

    def answered(self, asked: VPod, new: VPod, by: str) -> None:
        """A caller publishes an answer."""
        self._stored.vpods[new.key] = new
        self._answered[new.key] = (by, self._clock())
        if self._two_lead():
            for name in new.placements:
                self._coverage_excuses.all_of(name)
            return
        answer = replace(new, wanted=asked.wanted)
        if wrong := self._moves.check_unreported_moves(
            asked, answer, lambda name: self._coverage_excuses.excuses(name, new.key)
        ):
            self._violated(f"I4: {by} {wrong}")
        for name, count in asked.placements.items():
            pod = self._stored.pods.get(name)
            # Until it asks again, the caller may still publish the placements that it asked with,
            # even if they do not fit.
            if (
                pod is not None
                and pod.slots
                and pod.slots_of_others(new.key) + count * asked.weight > pod.slots
            ):
                self._edited_records.excuse_ledger(name, ASKS_AGAIN_S)
        left = new.condition[0] != "True"
        if not left and new.total < asked.wanted:
            self._violated(
                f"{by} told {new.key} that all {asked.wanted} are placed: {dict(new.placements)}"
            )
        for name, count in new.placements.items():
            pod = self._stored.pods.get(name)
            if pod is None or not pod.node or pod.count(new.key) >= count:
                continue
            if self._coverage_excuses.excuses(name, new.key):
                self._coverage_excuses.published(name, new.key)
            else:
                self._violated(
                    f"I2: {by} answered {new.key} {dict(new.placements)}, ledger of {name} has "
                    f"{pod.text}"
                )

    # -- what may be forgotten ---------------------------------------------------------------------

    def leader_changed(self) -> None:
        """A new leader knows no callers."""
        self.led_since = self._clock()

    def ordinal_gone(self, name: str) -> None:
        """The StatefulSet no longer has the ordinal."""
        self._left_at[name] = self._clock()

    def pod_gone(self, name: str) -> None:
        """A pod was removed."""
        self._gone_at[name] = self._clock()

    def bound(self, pod: Pod, actor: str) -> None:
        """Excuse what the ledger of a new pod lacks of callers that its binder may not know."""
        forgotten = self._may_have_forgotten(pod.name, actor)
        self._bound_at[pod.name] = self._clock()
        if not forgotten:
            return
        for key, vpod in self._stored.vpods.items():
            if not vpod.by_caller or self._knows(actor, key):
                continue
            had = self._coverage_excuses.held(pod.name).get(key, (0, 1))[0]
            if max(had, vpod.placements.get(pod.name, 0)) > pod.count(key):
                self._coverage_excuses.forgotten(pod.name, key)

    def _may_have_forgotten(self, name: str, actor: str) -> bool:
        gone_at = self._gone_at.get(name, -inf)
        has_left = self._left_at.get(name, -inf) > self._bound_at.get(name, -inf)
        return self._listed_at(actor) >= gone_at or (
            has_left and self._clock() - gone_at >= REMEMBERED_S
        )

    def _knows(self, actor: str, key: str) -> bool:
        """Return whether the replica was the last to answer this caller, and no Lease has changed
        its holder since.
        """
        by, at = self._answered.get(key, ("", -inf))
        return by == actor and at > self.led_since
