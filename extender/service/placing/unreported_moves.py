"""``UnreportedMoves``: why vpods were moved by status writes of which nobody knows whether they
have arrived.

Such a decision stays reserved, so the next one starts from it and cannot know why something has
moved. Its reasons are kept here until a status has been written and the move can be told (I4). What
has been published again by then, because the vpod changed meanwhile and was decided anew, has not
moved at all. And what is seen to be published no more has been told by the very write whose answer
was lost: the next status says nothing of it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from extender.engine.placing.explain import Reasoning, Step
from extender.engine.placing.plan import Decision

STEPS_MAX: Final = 100
"""Of one vpod; the oldest go first."""


class _Untold(NamedTuple):
    steps: tuple[Reasoning, ...]
    published: Mapping[str, int]
    """Pod name -> vreplicas, when the first of them was decided."""


class UnreportedMoves:
    """Steps by vpod key."""

    def __init__(self) -> None:
        self._unreported_moves: dict[str, _Untold] = {}

    def remember(self, decision: Decision, published: Mapping[str, int]) -> None:
        """Keep the moves of a decision whose status may or may not have been written.
        ``published``: before it.
        """
        if decision.moves:
            moving = (
                s
                for s in decision.explanation.steps
                if s.reason is not None or s.step is Step.ADDED
            )
            known = self._unreported_moves.get(decision.vpod) or _Untold((), dict(published))
            self._unreported_moves[decision.vpod] = known._replace(
                steps=(*known.steps, *moving)[-STEPS_MAX:]
            )

    def keep(self, there: Callable[[str], bool]) -> None:
        """Forget vpods that are not ``there`` any more: nobody will be told why they moved."""
        self._unreported_moves = {
            key: unreported_moves
            for key, unreported_moves in self._unreported_moves.items()
            if there(key)
        }

    def telling(self, decision: Decision, published: Mapping[str, int] | None = None) -> Decision:
        """The decision with the reasons of earlier ones that have not been told.

        ``published``: by the status that will be written anew; what differs in it from what was
        published before the first of those decisions is not told again. None: nothing does.
        """
        unreported_moves = self._unreported_moves.get(decision.vpod)
        if unreported_moves is None:
            return decision
        target, before = decision.target, unreported_moves.published
        left = {name for name, count in before.items() if target.get(name, 0) < count}
        # Also what an earlier decision had put on a pod that it has left again since.
        steps = [
            s
            for s in _not_told(unreported_moves, before if published is None else published)
            if s.reason is None or s.pod_name in left or s.pod_name not in before
        ]
        if not any(step.reason is not None for step in steps):
            return decision
        explanation = decision.explanation._replace(steps=(*steps, *decision.explanation.steps))
        return decision._replace(explanation=explanation)

    def told(self, decision: Decision) -> Decision:
        """As ``telling``, for the last time: a status says so now, and events shall, of the answer
        that was lost, too.
        """
        telling = self.telling(decision)
        self._unreported_moves.pop(decision.vpod, None)
        return telling


def _not_told(unreported_moves: _Untold, published: Mapping[str, int]) -> Iterator[Reasoning]:
    """The steps without those that have become ``published`` since: it has left, or come, with a
    status, the oldest first.
    """
    before = unreported_moves.published
    left = {name: count - published.get(name, 0) for name, count in before.items()}
    came = {name: count - before.get(name, 0) for name, count in published.items()}
    for step in unreported_moves.steps:
        known = came if step.reason is None else left
        told = min(step.vreplicas, max(0, known.get(step.pod_name, 0)))
        if told:
            known[step.pod_name] -= told
        if step.vreplicas > told:
            yield step._replace(vreplicas=step.vreplicas - told)
