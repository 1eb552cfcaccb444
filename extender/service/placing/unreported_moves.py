"""``UnreportedMoves``: keeps the reasons of moves whose status write has an unknown outcome.

Such a decision stays reserved, so the next decision starts from it and cannot know why vreplicas
have moved. The reasons are kept until a status is written and the moves can be reported (I4). The
report leaves out two kinds. Vreplicas that are published on their old pod again, after a new
decision, have not moved. And moves that the stored status already shows were reported by the write
whose reply was lost.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from extender.engine.placing.explain import Reasoning, Step, added
from extender.engine.placing.plan import Decision
from extender.model.bucket import Bucket
from extender.model.moves import Move

MOVES_MAX: Final = 100
"""Per vpod; the oldest are dropped first."""


class _Unreported(NamedTuple):
    pool: str
    moves: tuple[Move, ...]
    published: Mapping[str, int]
    """Pod name -> vreplicas, when the first of the moves was decided; more, if the vpod had grown
    there when a later move off that pod was decided (seed 240001154).
    """
    uid: str = ""
    """The vpod's; "" for one that was gone."""

    def is_of(self, decision: Decision) -> bool:
        """Whether they are those of the decided vpod, and not of another one of its name."""
        uid, _ = decision.decided_version
        return not (self.uid and uid) or self.uid == uid


class UnreportedMoves:
    """Moves by vpod key."""

    def __init__(self) -> None:
        self._moves: dict[str, _Unreported] = {}

    def remember(self, decision: Decision, published: Mapping[str, int]) -> None:
        """Keep the moves of a decision whose status may or may not have been written.
        ``published``: what the vpod published before.
        """
        if decision.moves:
            known = self._moves.get(decision.vpod)
            if known is None or not known.is_of(decision):
                known = _Unreported(decision.pool, (), dict(published), decision.decided_version[0])
            before = dict(known.published)
            for name in {move.from_pod for move in decision.moves} & published.keys():
                before[name] = max(before.get(name, 0), published[name])
            self._moves[decision.vpod] = known._replace(
                pool=decision.pool,
                moves=(*known.moves, *decision.moves)[-MOVES_MAX:],
                published=before,
            )

    def keep(self, there: Callable[[str], bool]) -> None:
        """Forget vpods for which ``there`` is false: nobody needs the reasons."""
        self._moves = {key: moves for key, moves in self._moves.items() if there(key)}

    def forget(self, bucket: Bucket) -> None:
        """Forget the pools of a bucket that another replica has led: it has published since."""
        self._moves = {key: one for key, one in self._moves.items() if not bucket.has(one.pool)}

    def added_to(self, decision: Decision, published: Mapping[str, int] | None = None) -> Decision:
        """The decision, with the unreported reasons of earlier decisions added.

        ``published``: what the status to be overwritten publishes. Moves that it already shows are
        left out. None: leave out none of them.
        """
        known = self._moves.get(decision.vpod)
        if known is None or not known.is_of(decision):
            return decision
        # The status may show more than was known when the moves were decided, because the reply to
        # an earlier write was lost.
        stored = known.published if published is None else published
        moves = list(_not_explained(decision, stored, _not_shown(known, stored)))
        if not moves:
            return decision
        steps = (*_steps_of(moves), *decision.explanation.steps)
        return decision._replace(explanation=decision.explanation._replace(steps=steps))

    def reported(self, decision: Decision) -> Decision:
        """As ``added_to``, then forget the vpod's moves: a status shows them. For events, it
        includes the moves of the write whose reply was lost.
        """
        reported = self.added_to(decision)
        self._moves.pop(decision.vpod, None)
        return reported


def _not_shown(unreported: _Unreported, published: Mapping[str, int]) -> Iterator[Move]:
    """The moves that ``published`` does not show yet, as vreplicas that left. Older moves count as
    shown first.

    What came does not count: a vpod that grows during a hand-over publishes the new pod while its
    vreplicas are still on the old one. When they leave, the report names that new pod (seed
    240000907).
    """
    before = unreported.published
    left = {name: count - published.get(name, 0) for name, count in before.items()}
    for move in unreported.moves:
        shown = min(move.vreplicas, max(0, left.get(move.from_pod, 0)))
        if shown:
            left[move.from_pod] -= shown
        if move.vreplicas > shown:
            yield replace(move, vreplicas=move.vreplicas - shown)


def _not_explained(
    decision: Decision, stored: Mapping[str, int], moves: Iterable[Move]
) -> Iterator[Move]:
    """Those of the moves that take vreplicas off a pod for which the decision itself has no reason.

    It may have one of its own for the same vreplicas: they were to move to another pod, and then
    the vpod has left the pool (seed 600000217).
    """
    left = Counter({name: count - decision.target.get(name, 0) for name, count in stored.items()})
    for own in decision.moves:
        left[own.from_pod] -= own.vreplicas
    explained: list[Move] = []
    # The newest first: an older one may have been undone, and its vreplicas moved elsewhere.
    for move in reversed(list(moves)):
        if move.from_pod not in stored:
            explained.append(move)  # off a pod that one decision chose and a later one took back
        elif (count := min(move.vreplicas, left[move.from_pod])) > 0:
            left[move.from_pod] -= count
            explained.append(replace(move, vreplicas=count))
    yield from reversed(explained)


def _steps_of(moves: Iterable[Move]) -> Iterator[Reasoning]:
    """The steps that ``Decision.moves`` pairs into these moves again. Moves without a new place
    come last: they may get a place of the next decision, whose steps follow, but not that of
    another move.
    """
    for move in sorted(moves, key=lambda move: not move.to_pod):
        yield Reasoning(
            Step.MOVED_AWAY, move.from_pod, move.vreplicas, str(move.reason), move.reason
        )
        if move.to_pod:
            yield added(move.to_pod, move.vreplicas)
