"""``Run``: so many inputs for one target, one after the other in one event loop, with the limits
that no input may exceed.

Time is the thread's CPU time, so that a busy machine makes no findings; what is too slow is tried
again before it counts. An alarm ends an input that does not end by itself. Memory is the resident
set, after a warm-up against the end. ``check`` looks for what inputs have left behind, every
``CHECK_PERIOD`` of them; then those since the last look are tried one by one.
"""

import asyncio
import ctypes
import gc
import random
import resource
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from tests.fuzz.findings import Broken, Finding, Hung, crash_kind
from tests.fuzz.mutator import Mutator
from tests.fuzz.target import Target

HUNG_S: Final = 10.0
"""CPU time after which an input is ended."""
WAITING_S: Final = 120.0
"""The same for one that waits instead: a busy machine must not make it look so."""
CHECK_PERIOD: Final = 512
GROWTH_BYTES_MAX: Final = 32 * 1024 * 1024
OUTCOMES_MAX: Final = 400
"""Different outcomes that are remembered; more are as likely as not the input's own words."""
FINDINGS_MAX: Final = 20
"""Kinds of findings after which a run ends."""


@dataclass(slots=True)
class Report:
    """What came of a run."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    accepted: int = 0
    """Inputs that were not refused: outcomes without an error."""
    slowest_s: float = 0.0
    growth_bytes: int = 0
    outcomes: dict[str, bytes] = field(default_factory=dict)
    """Outcome -> the first input that had it."""
    findings: dict[str, Finding] = field(default_factory=dict)

    def facts(self, seed: int) -> dict[str, object]:
        """For machines."""
        return {
            "target": self.target,
            "seed": seed,
            "inputs": self.inputs,
            "seconds": round(self.seconds, 1),
            "accepted": self.accepted,
            "outcomes": len(self.outcomes),
            "slowest_s": round(self.slowest_s, 4),
            "growth_bytes": self.growth_bytes,
            "findings": sorted(self.findings),
        }

    def line(self) -> str:
        """For people."""
        rate = self.inputs / self.seconds if self.seconds else 0.0
        return (
            f"{self.target:17} {self.inputs:>9,} inputs {rate:>8,.0f}/s  "
            f"{self.accepted / max(self.inputs, 1):4.0%} accepted  "
            f"{len(self.outcomes):3} outcomes  slowest {self.slowest_s * 1000:6.1f} ms  grown "
            f"{self.growth_bytes / 2**20:5.1f} MiB  "
            f"{len(self.findings)} findings"
        )


class Run:
    """Feeds one open target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.report = Report(target.name)
        self._recent: list[bytes] = []

    async def fuzz(
        self,
        inputs: int,
        *,
        rng: random.Random,
        corpus: Iterable[bytes],
        until: float = float("inf"),
    ) -> Report:
        """Give it ``inputs`` mutations, or as many as there is time for (``until``: monotonic)."""
        target = self.target
        mutator = Mutator(rng, target.seeds, target.dictionary(), structural=target.structural)
        for data in (*target.seeds, *corpus):
            mutator.add(data)
            await self.one(data)
        started, warm, resident = time.perf_counter(), inputs // 10, resident_bytes()
        for number in range(inputs):
            data = mutator.next()
            before = len(self.report.outcomes)
            await self.one(data)
            if len(self.report.outcomes) > before:
                mutator.add(data)
            if len(self.report.findings) >= FINDINGS_MAX:
                break
            if number % CHECK_PERIOD == 0:
                await self.look()
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    break
            if number == warm:
                resident = resident_bytes()
        await self.look()
        self.report.growth_bytes = resident_bytes() - resident
        self.report.seconds = time.perf_counter() - started
        if self.report.growth_bytes > GROWTH_BYTES_MAX:
            self._found(
                "memory grows",
                f"{self.report.growth_bytes} bytes in {self.report.inputs} inputs",
                b"",
            )
        return self.report

    async def one(self, data: bytes) -> None:
        """Give it one input."""
        self.report.inputs += 1
        self._recent.append(data)
        signal.setitimer(signal.ITIMER_PROF, HUNG_S)
        signal.setitimer(signal.ITIMER_REAL, WAITING_S)
        started = time.thread_time()
        try:
            outcome = await self.target.run(data)
        except Hung:
            self._found("hangs", "it did not end by itself", data)
            return
        except Exception as error:  # noqa: BLE001 - that is what we are looking for
            kind = f"broken: {str(error)[:60]}" if isinstance(error, Broken) else crash_kind(error)
            self._found(kind, repr(error)[:500], data)
            return
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            took_s = time.thread_time() - started
        if took_s > self.target.slow_s:
            took_s = min(took_s, await self._again_s(data))
            if took_s > self.target.slow_s:
                self._found(
                    f"slow: {outcome[:40]}",
                    f"{took_s:.2f} s for {len(data)} bytes: {outcome}",
                    data,
                )
        self.report.slowest_s = max(self.report.slowest_s, took_s)
        # Errors begin with their type's name, all else in lower case or with a status.
        self.report.accepted += not outcome[:1].isupper() and not outcome.startswith("no")
        if outcome not in self.report.outcomes and len(self.report.outcomes) < OUTCOMES_MAX:
            self.report.outcomes[outcome] = data

    async def _again_s(self, data: bytes) -> float:
        """CPU seconds of the same input, the better of two."""
        took = []
        for _ in range(2):
            started = time.thread_time()
            await self.target.run(data)
            took.append(time.thread_time() - started)
        return min(took)

    async def look(self) -> None:
        """Whether the inputs since the last look have left something behind, and which of them."""
        recent, self._recent = self._recent, []
        try:
            await self.target.check()
        except Broken as error:
            culprit = await self._culprit(recent)
            self._found(
                f"left behind: {str(error)[:60]}", f"{error} (after {len(recent)} inputs)", culprit
            )

    async def _culprit(self, inputs: list[bytes]) -> bytes:
        """The first of the inputs after which ``check`` fails; the target is opened anew for it,
        and after it.
        """
        await self._reopen()
        for data in inputs:
            try:
                await self.target.run(data)
                await self.target.check()
            except Exception:  # noqa: BLE001 - reported where it was met first
                await self._reopen()
                return data
        return b""

    async def _reopen(self) -> None:
        await self.target.close()
        await self.target.open()

    def _found(self, kind: str, detail: str, data: bytes) -> None:
        known = self.report.findings.get(kind)
        if known is None or len(data) < len(known.data):
            self.report.findings[kind] = Finding(self.target.name, kind, detail, data)


def resident_bytes() -> int:
    """The resident set of this process, without what is free: after one large input glibc keeps
    tens of MiB for the next.
    """
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


def arm() -> None:
    """Let the alarm raise Hung."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Hung

    signal.signal(signal.SIGALRM, ring)
    signal.signal(signal.SIGPROF, ring)


async def fuzz_target(
    target: Target,
    inputs: int,
    *,
    seed: int,
    corpus: Iterable[bytes] = (),
    until: float = float("inf"),
) -> Run:
    """Open, fuzz and close one target."""
    arm()
    await target.open()
    run = Run(target)
    try:
        await run.fuzz(
            inputs, rng=random.Random(f"{target.name} {seed}"), corpus=corpus, until=until
        )
    finally:
        await target.close()
    return run
