"""``UnreportedMoves``: keeps the reasons of moves whose status write has an unknown outcome.

Such a decision stays reserved, so the next decision starts from it and cannot know why vreplicas
have moved. The reasons are kept until a status is written and the moves can be reported (I4). The
report leaves out two kinds. Vreplicas that are published on their old pod again, after a new
decision, have not moved. And moves that the stored status already shows were reported by the write
whose reply was lost.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from extender.engine.placing.explain import Reasoning, Step
from extender.engine.placing.plan import Decision

STEPS_MAX: Final = 100
"""Per vpod; the oldest are dropped first."""


class _Unreported(NamedTuple):
    steps: tuple[Reasoning, ...]
    published: Mapping[str, int]
    """Pod name -> vreplicas, when the first of the steps was decided."""
    uid: str = ""
    """The vpod's; "" for one that was gone."""

    def is_of(self, decision: Decision) -> bool:
        """Whether they are those of the decided vpod, and not of another one of its name."""
        uid, _ = decision.decided_version
        return not (self.uid and uid) or self.uid == uid


class UnreportedMoves:
    """Steps by vpod key."""

    def __init__(self) -> None:
        self._moves: dict[str, _Unreported] = {}

    def remember(self, decision: Decision, published: Mapping[str, int]) -> None:
        """Keep the moves of a decision whose status may or may not have been written.
        ``published``: what the vpod published before.
        """
        if decision.moves:
            moving = (
                s
                for s in decision.explanation.steps
                if s.reason is not None or s.step is Step.ADDED
            )
            known = self._moves.get(decision.vpod)
            if known is None or not known.is_of(decision):
                known = _Unreported((), dict(published), decision.decided_version[0])
            self._moves[decision.vpod] = known._replace(steps=(*known.steps, *moving)[-STEPS_MAX:])

    def keep(self, there: Callable[[str], bool]) -> None:
        """Forget vpods for which ``there`` is false: nobody needs the reasons."""
        self._moves = {key: moves for key, moves in self._moves.items() if there(key)}

    def added_to(self, decision: Decision, published: Mapping[str, int] | None = None) -> Decision:
        """The decision, with the unreported reasons of earlier decisions added.

        ``published``: what the status to be overwritten publishes. Moves that it already shows are
        left out. None: leave out none of them.
        """
        moves = self._moves.get(decision.vpod)
        if moves is None or not moves.is_of(decision):
            return decision
        target, before = decision.target, moves.published
        left = {name for name, count in before.items() if target.get(name, 0) < count}
        # Also additions to a pod that an earlier decision made and a later one took back.
        steps = [
            s
            for s in _not_shown(moves, before if published is None else published)
            if s.reason is None or s.pod_name in left or s.pod_name not in before
        ]
        if not any(step.reason is not None for step in steps):
            return decision
        explanation = decision.explanation._replace(steps=(*steps, *decision.explanation.steps))
        return decision._replace(explanation=explanation)

    def reported(self, decision: Decision) -> Decision:
        """As ``added_to``, then forget the vpod's moves: a status shows them. For events, it
        includes the moves of the write whose reply was lost.
        """
        reported = self.added_to(decision)
        self._moves.pop(decision.vpod, None)
        return reported


def _not_shown(moves: _Unreported, published: Mapping[str, int]) -> Iterator[Reasoning]:
    """The steps that ``published`` does not show yet, as vreplicas that left or came. Older steps
    count as shown first.
    """
    before = moves.published
    left = {name: count - published.get(name, 0) for name, count in before.items()}
    came = {name: count - before.get(name, 0) for name, count in published.items()}
    for step in moves.steps:
        known = came if step.reason is None else left
        shown = min(step.vreplicas, max(0, known.get(step.pod_name, 0)))
        if shown:
            known[step.pod_name] -= shown
        if step.vreplicas > shown:
            yield step._replace(vreplicas=step.vreplicas - shown)
