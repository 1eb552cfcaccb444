"""The faults of a soak: wires that are cut or held, programs that are frozen or killed, nodes that
fail.

Theory of operation. ``Chaos.step`` does one, drawn by a seeded ``random.Random``; each ends by
itself or with ``calm``, after which everything works again. On the embedded cluster the API itself
misbehaves too, from ``begin`` to ``calm`` (``cluster.py``). The steady replica and the webhook are
frozen and cut off but never killed: what they hold is measured over the whole run.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from tests.e2e.backend import nodes_ready
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.processes import Process
from tests.soak.system import SoakSystem

HOLD_MAX_S: Final = 8.0
FREEZE_MAX_S: Final = 8.0
DOWN_MAX_S: Final = 3.0
WEIGHTS: Final = {
    "cut API connections": 3,
    "hold API connections": 2,
    "cut extender connections": 2,
    "hold extender connections": 1,
    "freeze steady": 1,
    "freeze mortal": 1,
    "freeze webhook": 1,
    "kill": 2,
    "stop": 1,
    "fail node": 1,
}


class Chaos:
    """Faults on ``system``. ``nodes``: those that may fail, one at a time."""

    def __init__(self, system: SoakSystem, nodes: list[str], rng: random.Random) -> None:
        self._system = system
        self._nodes = nodes
        self._rng = rng
        self._failed: str | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._replacing = asyncio.Lock()
        self.done: Counter[str] = Counter()

    def begin(self) -> None:
        """The API of the embedded cluster misbehaves from now on."""
        self._signal_cluster(signal.SIGUSR1)

    async def step(self) -> None:
        """One fault; it goes on in the background."""
        (what,) = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.done[what] += 1
        system, rng = self._system, self._rng
        match what:
            case "cut API connections":
                rng.choice(system.wires).reset()
            case "hold API connections":
                self._in_background(
                    self._hold(rng.choice(system.wires), rng.uniform(0.2, HOLD_MAX_S))
                )
            case "cut extender connections":
                system.front.reset()
            case "hold extender connections":
                self._in_background(self._hold(system.front, rng.uniform(0.2, HOLD_MAX_S)))
            case "kill" | "stop":
                self._in_background(
                    self._replace(kill=what == "kill", down_s=rng.uniform(0.0, DOWN_MAX_S))
                )
            case "fail node":
                await self._fail_node()
            case _:
                process = system.programs().get(what.removeprefix("freeze "))
                if process is not None:
                    self._in_background(self._freeze(process, rng.uniform(0.2, FREEZE_MAX_S)))

    async def calm(self) -> None:
        """No fault any more. Raises what a fault in the background ended with."""
        self._signal_cluster(signal.SIGUSR2)
        await asyncio.gather(*self._running)
        if self._failed is not None:
            await self._system.backend.recover_node(self._failed)
            await nodes_ready(self._system.backend.api, [self._failed])
            self._failed = None

    def _in_background(self, fault: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(fault)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        # One that failed stays, for ``calm`` to raise it.
        if not task.cancelled() and task.exception() is None:
            self._running.discard(task)

    async def _hold(self, wire: Any, duration_s: float) -> None:
        wire.hold()
        await asyncio.sleep(duration_s)
        wire.resume()

    async def _freeze(self, process: Process, duration_s: float) -> None:
        process.pause()
        await asyncio.sleep(duration_s)
        process.resume()

    async def _replace(self, *, kill: bool, down_s: float) -> None:
        async with self._replacing:
            mortal = self._system.mortal
            assert mortal.process is not None
            if kill:
                await mortal.process.kill()
            else:
                await mortal.process.terminate()
            await asyncio.sleep(down_s)
            await self._system.start(mortal)

    async def _fail_node(self) -> None:
        if self._failed is None:
            self._failed = self._rng.choice(self._nodes)
            await self._system.backend.fail_node(self._failed)

    def _signal_cluster(self, number: signal.Signals) -> None:
        backend = self._system.backend
        if isinstance(backend, EmbeddedBackend) and backend.cluster is not None:
            backend.cluster.signal(number)
