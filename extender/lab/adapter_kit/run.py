"""Plays the rules, some at a time, each with a process of its own."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from extender.lab.adapter_kit.authority import Authority
from extender.lab.adapter_kit.judging import CannotTell, Patience, RuleBroken
from extender.lab.adapter_kit.rules import RULES, Rule
from extender.lab.adapter_kit.stage import Stage, stage
from extender.model.errors import VReplicaError

JOBS: Final = 4
"""Rules at a time. Most of the time they wait."""


class Outcome(StrEnum):
    """Of a rule."""

    KEPT = "kept"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """``expected`` and ``seen``: of a rule that is broken; ``seen``: why it was skipped.

    ``work_was_seen``: whether the adapter has written its work log. Without it a rule is judged by
    what the adapter says.
    """

    rule: Rule
    outcome: Outcome
    expected: str = ""
    seen: str = ""
    work_was_seen: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which rules are played: those with these ``names``, or all; and with what patience."""

    names: Sequence[str] = ()
    exclusive: bool = False
    patience: Patience = field(default_factory=Patience)

    def rules(self) -> list[Rule]:
        """Return the rules that are played. Raises VReplicaError for an unknown name."""
        known = {rule.name: rule for rule in RULES}
        if unknown := [name for name in self.names if name not in known]:
            raise VReplicaError(f"no rule is called {unknown[0]!r}: there are {', '.join(known)}")
        if self.names:
            return [known[name] for name in self.names]
        return [rule for rule in RULES if self.exclusive or not rule.exclusive]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit(Choice):
    """Plays rules against adapters that it starts, ``jobs`` at a time."""

    command: Sequence[str]
    jobs: int = JOBS

    async def run(self, done: Callable[[Result], None]) -> list[Result]:
        """Play the rules and return their results in order. ``done`` hears of each as it ends.
        Raises OSError if the command cannot be started.
        """
        rules = self.rules()
        turns = asyncio.Semaphore(self.jobs)
        with tempfile.TemporaryDirectory(prefix="vreplica-adapter-kit-") as name:
            folder = Path(name)
            authority = Authority()

            async def one(rule: Rule) -> Result:
                async with turns:
                    result = await self._play(rule, folder / rule.name, authority)
                done(result)
                return result

            # The longest first: it takes as long as the rest together.
            order = sorted(rules, key=lambda rule: rule.name != "notices-silence")
            async with asyncio.TaskGroup() as group:
                tasks = {rule.name: group.create_task(one(rule)) for rule in order}
        return [tasks[rule.name].result() for rule in rules]

    async def _play(self, rule: Rule, folder: Path, authority: Authority) -> Result:
        async with stage(self.command, folder, authority, self.patience) as played:
            return await judged(rule, played)


async def judged(rule: Rule, played: Stage) -> Result:
    """Play a rule on a stage that is open."""
    try:
        await rule.play(played)
        played.must_be_right(rule.text)
    except RuleBroken as broken:
        return Result(rule, Outcome.BROKEN, broken.expected, broken.seen, played.log.is_used)
    except CannotTell as why:
        return Result(rule, Outcome.SKIPPED, seen=str(why), work_was_seen=False)
    return Result(rule, Outcome.KEPT, work_was_seen=played.log.is_used)
