"""``Target``: the programs that are attacked, their memory limits, and what honest clients see
meanwhile.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from extender.kube.api import Obj
from tests.attack.listening import SystemWithCallers
from tests.e2e.objects import MANIFESTS
from tests.e2e.processes import Process

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
PERIOD_S: Final = 0.02
ANSWER_S_MAX: Final = 5.0
QUIET_S: Final = 3.0
P99_S_MAX: Final = 0.1
P99_SHORT_S_MAX: Final = 0.3
"""On top of what the same clients wait while nobody attacks. The short form runs beside all else
that tests a change, on machines of any speed: it looks for effects of a second.
"""


@dataclass(slots=True)
class Honest:
    """What honest clients have seen of one program, a question each ``PERIOD_S``."""

    took_s: list[float] = field(default_factory=list)
    """Without the time in which the program was ready to run and had no processor, which is the
    machine's doing.
    """
    starved_s: float = 0.0
    """All of that time."""
    failed: list[str] = field(default_factory=list)

    def p99_s(self) -> float:
        """Seconds; infinite where nothing was answered."""
        ordered = sorted(self.took_s)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")


@dataclass(frozen=True, slots=True)
class Target:
    """A system at work. ``filter_args`` and ``review`` are good requests."""

    system: SystemWithCallers
    filter_args: bytes
    review: bytes
    short: bool
    quiet: Mapping[str, Honest]
    """What honest clients have seen before."""

    def is_late(self, program: str, honest: Honest) -> bool:
        """Whether more than one in a hundred waited for an attack for longer than ``P99_S_MAX``, or
        in the short form ``P99_SHORT_S_MAX``.
        """
        most_s = P99_SHORT_S_MAX if self.short else P99_S_MAX
        return honest.p99_s() > most_s + self.quiet[program].p99_s()

    @property
    def programs(self) -> Mapping[str, Process]:
        """By name."""
        service, webhook = self.system.service.process, self.system.webhook
        assert service is not None
        assert webhook is not None
        return {"extender": service, "webhook": webhook}

    @asynccontextmanager
    async def flooded(
        self, forms: Mapping[str, Mapping[str, int]], seconds: float
    ) -> AsyncIterator[None]:
        """While clients send ``forms`` (listener: {form: connections}); see ``flood``. ``callers``
        is the extender's listener for controllers.
        """
        urls = {
            "extender": self.system.service_url,
            "webhook": self.system.webhook_url,
            "callers": self.system.schedule_url,
        }
        floods = []
        for program, of_program in forms.items():
            spec = {
                "port": int(urls[program].rpartition(":")[2]),
                "tls": urls[program].startswith("https:"),
                "seconds": seconds,
                "forms": dict(of_program),
            }
            floods.append(
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "tests.attack.flood",
                    json.dumps(spec),
                    stderr=asyncio.subprocess.DEVNULL,
                )
            )
        for flood in floods:
            _run_on(flood.pid, slice(-1, None))
        try:
            yield
        finally:
            for flood in floods:
                with contextlib.suppress(ProcessLookupError):
                    flood.kill()
                await flood.wait()

    async def ask(self, seconds: float) -> Mapping[str, Honest]:
        """Filters and reviews on kept connections for so long."""
        until = time.monotonic() + seconds
        seen = {"extender": Honest(), "webhook": Honest()}
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=ANSWER_S_MAX)
        ) as session:
            await asyncio.gather(
                self._ask(session, "extender", until, seen["extender"]),
                self._ask(session, "webhook", until, seen["webhook"]),
            )
        return seen

    async def _ask(
        self, session: aiohttp.ClientSession, program: str, until: float, seen: Honest
    ) -> None:
        url, body = {
            "extender": (f"{self.system.service_url}/v1/filter", self.filter_args),
            "webhook": (f"{self.system.webhook_url}/mutate", self.review),
        }[program]
        headers = {"Content-Type": "application/json"}

        async def question() -> str:
            async with session.post(
                url, data=body, headers=headers, ssl=self.system.webhook_tls or True
            ) as reply:
                text = await reply.text()
                return "" if reply.status == 200 else f"{reply.status}: {text[:100]}"

        await self.ask_on(program, question, until, seen)

    async def ask_on(
        self, program: str, question: Callable[[], Awaitable[str]], until: float, seen: Honest
    ) -> None:
        """Ask a program ``question`` again and again. It returns what is wrong with the answer, ""
        for nothing. ``until``: monotonic, seconds.
        """
        process = self.programs[program]
        while time.monotonic() < until:
            starved_before_s, began = _starved_s(process), time.perf_counter()
            try:
                if problem := await question():
                    seen.failed.append(problem)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                seen.failed.append(repr(error)[:100])
            took_s = time.perf_counter() - began
            starved_s = min(took_s, max(0.0, _starved_s(process) - starved_before_s))
            seen.took_s.append(took_s - starved_s)
            seen.starved_s += starved_s
            await asyncio.sleep(PERIOD_S)

    def memory(self) -> list[str]:
        """What is wrong: programs that have ended, or had more memory than their container may
        have.
        """
        wrong = []
        for name, process in self.programs.items():
            peak = process.peak_memory_bytes() / MIB
            limit = LIMITS_MIB[name]
            if process.returncode is not None:
                wrong.append(f"{name} has ended with {process.returncode}")
            elif peak >= limit:
                wrong.append(f"{name} had {peak:.0f} MiB, of {limit} that it may have")
        return wrong


def apart(programs: Iterable[Process]) -> None:
    """Leave the last processor to the attackers: theirs are other machines."""
    for program in programs:
        _run_on(program.pid, slice(0, -1))


def _run_on(pid: int, which: slice) -> None:
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        os.sched_setaffinity(pid, processors[which])


def _starved_s(process: Process) -> float:
    """How long its main thread has been ready while others had the processor, by Linux' /proc; 0
    where it has ended. Its own threads are no others.
    """
    waited = worked = 0
    for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        try:
            ran_ns, waited_ns, _ = map(int, thread.read_text().split())
        except OSError:  # it has ended
            continue
        if thread.parent.name == str(process.pid):
            waited = waited_ns
        else:
            worked += ran_ns
    return (waited - worked) / 1e9


def _limit_mib(file: str) -> int:
    for obj in yaml.safe_load_all((MANIFESTS / "base" / file).read_text()):
        if obj["kind"] == "Deployment":
            limit = str(_first_container(obj)["resources"]["limits"]["memory"])
            if (found := re.fullmatch(r"(\d+)Mi", limit)) is not None:
                return int(found[1])
    raise AssertionError(f"{file} names no limit in Mi")


def _first_container(deployment: Obj) -> Obj:
    container: Obj = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


LIMITS_MIB: Final = {
    "extender": _limit_mib("scheduler.yaml"),
    "webhook": _limit_mib("webhook.yaml"),
}
"""Of the containers, as shipped."""
