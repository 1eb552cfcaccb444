"""``DecisionHistory``: remembers what this replica decided for each vpod, when and why.

Each decision is kept with its ``Explanation``. A decision that only repeats the last one is counted
there. So a vpod that waits, and is decided again with every change of its pool, keeps the decision
that placed it. Decisions of other replicas are not known here: the vpod's conditions and events
show them.

The decision log (``decision_log``) receives the same decisions, but neither can replace the other.
The log keeps decisions only while somebody records, in the order of all changes, and *before* they
are written. So it knows neither why a decision was made nor whether its write succeeded. This
history always keeps each vpod's last few decisions, *after* the write.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from extender.engine.placing.explain import Explanation, Step
from extender.model.bounded import put_bounded
from extender.model.objects import VPod
from extender.model.timestamps import timestamp
from extender.whatif.explanation import PastDecision

VPODS_MAX: Final = 10_000
DECISIONS_MAX: Final = 8
"""Per vpod."""
STEPS_LISTED_MAX: Final = 20

NEW: Final = "it had no place yet"
TOOK_OVER: Final = "this replica began to lead"
WAITED: Final = "it waited, and the pool or its nodes changed"
POOL_CHANGED: Final = "the pool, its pods or their nodes changed"
ASKED: Final = "its controller asked (POST /v1/schedule)"
EVICTOR: Final = "the evictor moved it"


@dataclass(slots=True)
class _Entry:
    """One decision, or several equal ones. Times are epoch seconds."""

    at: float
    why: str
    generation: int
    explanation: Explanation
    error: str
    last_at: float
    times: int = 1


class DecisionHistory:
    """Remembers the ``VPODS_MAX`` vpods that were decided last. ``now``: epoch seconds."""

    def __init__(self, identity: str, now: Callable[[], float]) -> None:
        self._identity = identity
        self._now = now
        self._entries: OrderedDict[str, list[_Entry]] = OrderedDict()

    def __len__(self) -> int:
        """The number of vpods with remembered decisions."""
        return len(self._entries)

    def note(
        self, key: str, explanation: Explanation, *, why: str, generation: int = 0, error: str = ""
    ) -> None:
        """Remember a decision. ``error``: why it was not written; "" if it was."""
        now, known = self._now(), self._entries
        entries = known.get(key)
        if entries is None:
            first = _Entry(now, why, generation, explanation, error, now)
            put_bounded(known, key, [first], VPODS_MAX)
            return
        known.move_to_end(key)
        last = entries[-1]
        if _same(last, explanation, generation, error):
            last.last_at, last.times = now, last.times + 1
            return
        entries.append(_Entry(now, why, generation, explanation, error, now))
        del entries[:-DECISIONS_MAX]

    def forget(self, key: str) -> None:
        """Forget a vpod that is gone."""
        self._entries.pop(key, None)

    def why(self, key: str, vpod: VPod, explanation: Explanation) -> str:
        """Why the placer decided the vpod, judged by the last decision."""
        steps = explanation.steps
        if any(step.reason is not None for step in steps):
            reasons = sorted({str(step.reason) for step in steps if step.reason is not None})
            return f"what it had could not stay ({', '.join(reasons)})"
        entries = self._entries.get(key)
        if not entries:
            added = sum(step.vreplicas for step in steps if step.step is Step.ADDED)
            return NEW if added == explanation.wanted - explanation.pending else TOOK_OVER
        last = entries[-1]
        if last.generation != vpod.generation:
            return f"its spec changed (generation {vpod.generation})"
        if last.error:
            return "the last decision could not be written"
        return POOL_CHANGED if last.explanation.is_satisfied else WAITED

    def explanation(self, key: str) -> Explanation | None:
        """The explanation of the last decision. If that left all vreplicas in place, the one that
        says how they came there.
        """
        found: Explanation | None = None
        for entry in reversed(self._entries.get(key, ())):
            if found is not None and not _says_nothing_new(entry.explanation, found):
                break
            found = entry.explanation
        return found

    def history(self, key: str) -> list[PastDecision]:
        """The remembered decisions of a vpod, newest first."""
        return [self._past_decision(entry) for entry in reversed(self._entries.get(key, ()))]

    def _past_decision(self, entry: _Entry) -> PastDecision:
        text = "; ".join(_sentences(entry.explanation))
        if entry.times > 1:
            text += f" (said {entry.times} times, last at {timestamp(entry.last_at)})"
        if entry.error:
            text += f" (not written: {entry.error[:500]})"
        return PastDecision(timestamp(entry.at), self._identity, entry.why, text)


def _sentences(explanation: Explanation) -> Iterator[str]:
    """The outcome, then the steps."""
    yield explanation.outcome()
    for item in islice(explanation.steps, STEPS_LISTED_MAX):
        yield f"{item.step}: {item.vreplicas} on {item.pod_name}" + (
            f" ({item.why})" if item.why else ""
        )
    if len(explanation.steps) > STEPS_LISTED_MAX:
        yield f"and {len(explanation.steps) - STEPS_LISTED_MAX} steps more"


def _same(entry: _Entry, explanation: Explanation, generation: int, error: str) -> bool:
    """Whether a decision adds nothing to the last one: it is equal, or it leaves all in place."""
    if entry.generation != generation or entry.error != error:
        return False
    return entry.explanation == explanation or _says_nothing_new(entry.explanation, explanation)


def _says_nothing_new(known: Explanation, new: Explanation) -> bool:
    """Whether all stays in place after ``known``, which says how it came there and so is worth
    more.
    """
    return new.is_satisfied and known.is_satisfied and not new.steps and known.wanted == new.wanted
