"""``Replay``: plays a recording in three ways at once, and reports the differences
(docs/record-replay.md). Pure.

- each decision again, on the state on which it was made: which differ, and why
- a rehearsal as recorded, and one with the changes: what each would have come to
- what happened, as the recording shows

It takes one line at a time, in bounded memory: it keeps the first decisions that differ, and
``SAMPLES_MAX`` moments. Equal lines give equal reports.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.model.objects import VPod
from extender.whatif.comparison import moved
from extender.whatif.recording.entries import Decided, Entry, Gap, Header, Line, Put, Synced
from extender.whatif.recording.measures import EXPOSURE_EVERY, Tally
from extender.whatif.recording.player import NO_CHANGES, Changes, Pair, Player
from extender.whatif.recording.rehearsal import Rehearsal

SAMPLES_MAX: Final = 240
SHOWN_PODS_MAX: Final = 50
"""Pods shown of one decision's target."""
REFUSALS_SHOWN_MAX: Final = 5
TICK_S: Final = 1.0
SILENCE_S: Final = 6 * 3600.0
"""If nothing was recorded for longer, only the last part of this length is played, and the report
counts the rest as skipped.
"""


class Span(NamedTuple):
    """From when to when, in epoch seconds."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """The length."""
        return max(0.0, self.end - self.begin)


class Different(NamedTuple):
    """A decision that differs when it is made again."""

    entry: Entry
    recorded: Decided
    replayed: Decided | None


class Replay:
    """Takes every line in order. After ``end``, ``to_json`` has the report. ``first``: how many
    differing decisions to show.
    """

    def __init__(
        self,
        span: Span,
        *,
        profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
        changes: Changes = NO_CHANGES,
        first: int = 20,
    ) -> None:
        self.header: Header | None = None
        self.entries = self.compared = self.differing = 0
        self.gaps: list[str] = []
        self.skipped_s = 0.0
        self.cut_off = False
        """Whether a file ends within a line."""
        self.first: list[Different] = []
        self.recorded, self.as_recorded, self.changed = Tally(), Tally(), Tally()
        self._span = span
        self._changes = changes
        self._first_max = first
        self._facts = Player(profiles)
        self._other = Player(profiles, changes) if changes else self._facts
        self._model = Rehearsal(profiles)
        self._changed_model = Rehearsal(profiles, changes) if changes else self._model
        self._now = span.begin
        self._samples = 0

    def take(self, line: Line | None) -> None:
        """Take one line, or None for an incomplete one. Raises InvalidObject if a profile is not
        known, or a pool too large.
        """
        match line:
            case Header():
                self._begin(line)
            case Synced():
                for model in self._models():
                    model.end_snapshot()
                if not self._samples:
                    self._tick(self._now)
                    self._sample(self._now, exposed=True)
            case Gap(why):
                self.gaps.append(why)
            case Entry():
                self._reach(line.at)
                self.entries += 1
                self._play(line)
            case None:
                self.cut_off = True

    def end(self) -> None:
        """End the recording."""
        self._reach(self._span.end)
        self._tick(self._span.end)
        self._sample(self._span.end, exposed=True)

    def _begin(self, header: Header) -> None:
        if self.header is not None and header.source != self.header.source:
            self.gaps.append(
                f"from here on a {header.source} is recorded, not a {self.header.source}"
            )
        self.header = header
        for player in (self._facts, self._other):
            player.forget()
            player.observed = header.source == "cluster"
        for model in self._models():
            model.begin_snapshot()

    def _models(self) -> tuple[Rehearsal, ...]:
        return (self._model, self._changed_model) if self._changes else (self._model,)

    def _play(self, entry: Entry) -> None:
        if isinstance(entry.content, Put) and isinstance(entry.content.obj, VPod):
            self._count_moves(entry.content.obj)
        pair = self._other.play(entry.content)
        if self._other is not self._facts:
            self._facts.play(entry.content)
        if pair is not None:
            self._compare(entry, pair)
        for model in self._models():
            model.play(entry.content)

    def _count_moves(self, vpod: VPod) -> None:
        old = self._facts.objects.get(("VPod", vpod.key))
        if isinstance(old, VPod) and old.uid == vpod.uid and old.pool == vpod.pool:
            self.recorded.moved += moved(old.placements, vpod.placements, wanted=vpod.vreplicas)

    def _compare(self, entry: Entry, pair: Pair) -> None:
        was, made = pair
        self.compared += 1
        if made is not None and made.outcome == was.outcome:
            return
        self.differing += 1
        if len(self.first) < self._first_max:
            self.first.append(Different(entry, was, made))

    # -- time --------------------------------------------------------------------------------------

    def _reach(self, at: float) -> None:
        """Play the seconds up to ``at``."""
        if at - self._now > SILENCE_S:
            self.skipped_s += at - self._now - SILENCE_S
            self._now = at - SILENCE_S
        while self._now + TICK_S <= at:
            self._now += TICK_S
            self._tick(self._now)
            if self._now >= self._span.begin + self._samples * self._sample_s:
                self._sample(self._now, exposed=self._samples % EXPOSURE_EVERY == 0)

    @property
    def _sample_s(self) -> float:
        return max(TICK_S, self._span.seconds / SAMPLES_MAX)

    def _tick(self, at: float) -> None:
        for model in self._models():
            model.tick(at)

    def _sample(self, at: float, *, exposed: bool) -> None:
        self._samples += 1
        self.recorded.take(self._facts.state, at, exposed=exposed)
        self.as_recorded.take(self._model.state, at, exposed=exposed)
        self.as_recorded.moved = self._model.moved
        if self._changes:
            self.changed.take(self._changed_model.state, at, exposed=exposed)
            self.changed.moved = self._changed_model.moved

    # -- the report --------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        """The report as plain data."""
        header = self.header or Header("", self._span.begin)
        return {
            "recording": {
                "source": header.source,
                "version": header.version,
                "identity": header.identity,
                "from": round(self._span.begin, 3),
                "seconds": round(self._span.seconds, 3),
                "entries": self.entries,
                "gaps": self.gaps[: self._first_max],
                "cutOff": self.cut_off,
                "skippedSeconds": round(self.skipped_s, 3),
            },
            "changes": {
                **({"profile": self._changes.profile} if self._changes.profile else {}),
                **dict(sorted(self._changes.settings.items())),
            },
            "decisions": {
                "compared": self.compared,
                "same": self.compared - self.differing,
                "differing": self.differing,
                "first": [_different_to_json(one) for one in self.first],
            },
            "outcome": {name: tally.to_json() for name, tally in self._tallies().items()},
            "overTime": self._over_time(),
        }

    def _tallies(self) -> dict[str, Tally]:
        changed = {"changed": self.changed} if self._changes else {}
        return {"recorded": self.recorded, "rehearsed": self.as_recorded, **changed}

    def _over_time(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for index, was in enumerate(self.recorded.samples):
            now = {name: tally.samples[index] for name, tally in self._tallies().items()}
            rows.append(
                {
                    "second": round(was.at - self._span.begin, 3),
                    "wanted": was.wanted,
                    "unplaced": {name: one.unplaced for name, one in now.items()},
                    "pods": {name: one.pods for name, one in now.items()},
                }
            )
        return rows


def _different_to_json(one: Different) -> dict[str, object]:
    return {
        "at": one.entry.at,
        "seq": one.entry.seq,
        "cause": str(one.recorded.cause),
        "vpod": one.recorded.vpod,
        "pool": one.recorded.pool,
        "wanted": one.recorded.wanted,
        "recorded": _decided_to_json(one.recorded),
        "replayed": _decided_to_json(one.replayed) if one.replayed is not None else None,
    }


def _decided_to_json(decided: Decided) -> dict[str, object]:
    shown = dict(list(decided.target.items())[:SHOWN_PODS_MAX])
    more = len(decided.target) - len(shown)
    refused = [f"{count} {why}" for why, count in decided.refused[:REFUSALS_SHOWN_MAX]]
    return {
        "placements": shown,
        **({"podsNotShown": more} if more else {}),
        "unplaced": decided.left,
        "reasons": [text for text in (decided.reason, decided.detail) if text] + refused,
    }
