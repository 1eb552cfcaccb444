"""One soak: rounds of trouble and of calm, what is measured after each, and the verdict.

    round: churn + faults for ROUND_S --> calm --> settled (I3) --> history checked (I1, I2, I4)
           --> reservations gone --> sample

Whatever does not settle, is a breach, or ends a program ends the soak as a failure; what grows
fails it at the end (``measure.py``).
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from extender.kube.api import ApiError
from extender.model.moves import MoveReason
from extender.model.objects import split_key
from tests.e2e.backend import Backend
from tests.e2e.operations import remove_vpods, without_pods
from tests.e2e.processes import ProcessFailed
from tests.e2e.waiting import NotYet, eventually
from tests.soak.chaos import Chaos
from tests.soak.churn import Churn
from tests.soak.measure import JUDGED_MIN_S, Sample, Trend, of_process, of_replica, trends
from tests.soak.system import SoakSystem

ROUND_S: Final = 40.0
CHURN_PERIOD_S: Final = 0.4
FAULT_PERIOD_S: Final = 4.0
SETTLE_TIMEOUT_S: Final = 90.0
RESERVATIONS_TIMEOUT_S: Final = 45.0
"""Longer than a reservation that nothing confirms lives (30 s)."""
LEADER_TIMEOUT_S: Final = 30.0
NODES: Final = 6
EXPECTED_MOVES: Final = frozenset(
    {MoveReason.DRAIN, MoveReason.COMPACTION, MoveReason.ORDINAL_GONE}
)


@dataclass
class Report:
    """What came out."""

    backend: str
    seed: int
    rounds: int = 0
    elapsed_s: float = 0.0
    versions_checked: int = 0
    slowest_settling_s: float = 0.0
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    error: str = ""

    def trends(self) -> dict[str, list[Trend]]:
        """By program. The mortal replica starts anew again and again: it has none."""
        return {
            name: trends(samples, self.elapsed_s)
            for name, samples in self.samples.items()
            if name != "mortal"
        }

    def failures(self) -> list[str]:
        """Why the soak failed, nothing if it passed."""
        growing = [
            f"{name}: {trend.name} grows by {trend.growth:g} in ten minutes (limit {trend.limit:g})"
            for name, found in self.trends().items()
            for trend in found
            if not trend.flat
        ]
        return [self.error, *growing] if self.error else growing

    def unjudged(self) -> list[str]:
        """Programs of which no trend is judged, which "passed" says nothing about: the run was too
        short for it.
        """
        return [
            name
            for name, found in self.trends().items()
            if not any(trend.growth is not None for trend in found)
        ]

    def verdict(self) -> str:
        """In one line: what is known now, and what is not."""
        if self.failures():
            return f"FAILED: {len(self.failures())} failures"
        if unjudged := self.unjudged():
            needed = 2 * JUDGED_MIN_S / 60
            return (
                f"no invariant broke; whether anything grows was NOT judged "
                f"({', '.join(unjudged)}): "
                f"that takes more than {needed:g} minutes"
            )
        return "passed: no invariant broke, and nothing grows"

    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "backend": self.backend,
            "seed": self.seed,
            "passed": not self.failures(),
            "failures": self.failures(),
            "trendsNotJudged": self.unjudged(),
            "rounds": self.rounds,
            "elapsedSeconds": round(self.elapsed_s, 1),
            "versionsChecked": self.versions_checked,
            "slowestSettlingSeconds": round(self.slowest_settling_s, 1),
            "operations": dict(self.operations),
            "faults": dict(self.faults),
            "trends": {
                name: [asdict(trend) for trend in found] for name, found in self.trends().items()
            },
            "samples": {
                name: [asdict(s) for s in samples] for name, samples in self.samples.items()
            },
        }


class Soak:
    """Runs for ``minutes``; ``tell`` gets a line a round."""

    def __init__(
        self,
        backend: Backend,
        directory: Path,
        *,
        seed: int,
        tell: Callable[[str], object] = sys.stdout.write,
    ) -> None:
        self._directory = directory
        self._backend = backend
        self._seed = seed
        self._tell = tell
        self._started = time.monotonic()
        self.report = Report(backend.name, seed)

    async def run(self, minutes: float) -> Report:
        """The report, also of a failure. Raises what goes wrong before the first round."""
        try:
            await self._run(minutes)
        except AssertionError as error:  # of the checks at the end of the installation
            self.report.error = self.report.error or str(error)
        return self.report

    async def _run(self, minutes: float) -> None:
        async with SoakSystem(self._backend, self._directory) as system:
            system.watcher.may_move = EXPECTED_MOVES
            system.watcher.may_lack_ledger = True  # the webhook is frozen now and then
            nodes = await self._backend.add_nodes(NODES)
            await system.pool(scaleDownPeriodSeconds=5)
            tenant = await self._backend.namespace("tenant")
            churn = Churn(system, tenant, random.Random(f"{self._seed} churn"))
            chaos = Chaos(system, nodes, random.Random(f"{self._seed} chaos"))
            self.report.operations, self.report.faults = churn.done, chaos.done
            self._started = time.monotonic()
            while self._elapsed_s() < minutes * 60.0 and not self.report.error:
                try:
                    await self._round(system, churn, chaos)
                except (
                    ApiError,
                    AssertionError,
                    ProcessFailed,
                    OSError,
                    RuntimeError,
                    ExceptionGroup,
                ) as error:
                    self.report.error = f"round {self.report.rounds + 1}: {error}"
            self.report.elapsed_s = self._elapsed_s()
            if not self.report.error:
                await self._end(system)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    async def _round(self, system: SoakSystem, churn: Churn, chaos: Chaos) -> None:
        end = self._elapsed_s() + ROUND_S
        next_fault = self._elapsed_s()
        chaos.begin()
        while self._elapsed_s() < end:
            await churn.step()
            if self._elapsed_s() >= next_fault:
                await chaos.step()
                next_fault += FAULT_PERIOD_S
            await asyncio.sleep(CHURN_PERIOD_S)
        await chaos.calm()
        await churn.calm()
        calm_at = self._elapsed_s()
        for name, process in system.programs().items():
            if process.returncode is not None:
                raise RuntimeError(
                    f"{name} ended with {process.returncode}: {process.log_tail()[-2000:]}"
                )
        pods = await system.settled(timeout_s=SETTLE_TIMEOUT_S)
        settling_s = self._elapsed_s() - calm_at
        self.report.slowest_settling_s = max(self.report.slowest_settling_s, settling_s)
        self.report.versions_checked += await system.watcher.check_and_forget()
        await eventually(lambda: self._one_leads(system), LEADER_TIMEOUT_S, "one replica leads")
        await self._sample(system)
        self.report.rounds += 1
        self._line(len(pods), settling_s)

    async def _one_leads(self, system: SoakSystem) -> bool:
        leading = [bool((await r.state())["leading"]) for r in (system.steady, system.mortal)]
        return leading.count(True) == 1

    async def _sample(self, system: SoakSystem) -> None:
        for name, process in system.programs().items():
            replica = {"steady": system.steady, "mortal": system.mortal}.get(name)
            leading, values = None, of_process(process)
            if replica is not None:

                async def reserved_nothing(replica=replica) -> bool:
                    _, seen = await of_replica(replica)
                    if seen["reservations"]:
                        raise NotYet(
                            f"{seen['reservations']:g} vreplicas are reserved at {replica.url}"
                        )
                    return True

                await eventually(reserved_nothing, RESERVATIONS_TIMEOUT_S, "reservations are gone")
                leading, seen = await of_replica(replica)
                values |= seen
            sample = Sample(round(self._elapsed_s(), 1), leading, values)
            self.report.samples.setdefault(name, []).append(sample)

    def _line(self, pods: int, settling_s: float) -> None:
        parts = [f"{self._elapsed_s() / 60:5.1f} min  settled in {settling_s:4.1f} s  {pods} pods"]
        for name, samples in self.report.samples.items():
            values = samples[-1].values
            role = {True: " leads", False: " follows", None: ""}[samples[-1].leading]
            tasks = f" {values['tasks']:g} tasks" if "tasks" in values else ""
            parts.append(
                f"{name}{role}: {values['rss_mib']:.1f} MiB "
                f"{values['sockets']:g}/{values['fds']:g} sockets/fds{tasks}"
            )
        self._tell("  |  ".join(parts) + "\n")

    async def _end(self, system: SoakSystem) -> None:
        """All tenants go: nothing may be left. Then SIGTERM, which all must take."""
        for key in await system.all_vpods():
            namespace, name = split_key(key)
            await remove_vpods(system, namespace, [name])
        await without_pods(system)
        for name, process in system.programs().items():
            code = await process.terminate()
            if code != 0:
                self.report.error = f"{name} ended with {code}: {process.log_tail()[-2000:]}"


def write(report: Report, path: Path) -> None:
    """The summary as JSON."""
    path.write_text(json.dumps(report.summary(), indent=1) + "\n")
