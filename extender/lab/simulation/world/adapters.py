"""``SimulatedAdapters``: a process in each Ready pod of the pools that hand shares over (the part
``handoff``). It does what its assignment says, and acknowledges it at any replica.

A seed's adapters are of several kinds. Most are prompt or take seconds. Some never do what one
state asks for, until the calm. Some never acknowledge: they are without the contract. All of them
send an acknowledgement twice at times, and say again what they have said before. ``adapter`` tells
checkers what a pod's adapter really serves.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from extender.kube.api import Obj
from extender.lab.apiserver.store import Change
from extender.lab.scheduler.extender_transport import TransportError
from extender.lab.simulation.world.facts import ASSIGNMENT, POOL, is_ready
from extender.lab.simulation.world.replica import Replica

RETRY_S: Final = 1.0
TIMEOUT_S: Final = 5.0
REPEATED_SHARE: Final = 0.05
DELAYS_S: Final = (0.1, 0.1, 0.5, 3.0, 20.0)
"""An adapter takes up to so long for what it is told."""
STUCK_SHARE: Final = 0.1
SILENT_SHARE: Final = 0.1


TRY_AGAIN: Final = (403, 404, 409, 413, 429, 503, 504)
"""413: so many shares are busy that their names are too long to store. Later they are fewer."""


@dataclass
class SimulatedAdapter:
    """The adapter of one pod. ``serving``: vpod -> vreplicas; ``prepared``: vpods."""

    uid: str
    delay_s: float
    never: str
    """The state that it does not get to while it is stuck; "" for none."""
    silent: bool
    serving: dict[str, int] = field(default_factory=dict)
    prepared: set[str] = field(default_factory=set)
    told: Mapping[str, Any] | None = None
    """The assignment that it acts on."""
    heard: int = 0
    """The newest generation of which a replica has taken an acknowledgement."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_well(self) -> bool:
        """Whether it keeps the contract, within seconds."""
        return not self.never and not self.silent and self.delay_s <= DELAYS_S[-2]


class SimulatedAdapters:
    """``on_change`` subscribes to the store. ``run``: starts a process of the world."""

    def __init__(
        self,
        rng: random.Random,
        *,
        replicas: Callable[[], list[Replica]],
        run: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
        trace: Callable[[str], None],
        problems: list[str],
    ) -> None:
        self._rng = rng
        self._replicas = replicas
        self._run = run
        self._trace = trace
        self._problems = problems
        self._adapters: dict[str, SimulatedAdapter] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Both by pod name."""
        self._newest: dict[str, str] = {}
        """Pod name -> the text of its assignment."""
        self._calm = False
        self.serves_on_s = 0.0
        """How long an adapter at least serves a share that it is told to drain."""

    def adapter(self, pod: str) -> SimulatedAdapter | None:
        """The adapter that runs in a pod."""
        return self._adapters.get(pod)

    def serves(self, pod: str) -> bool:
        """Whether the pod's adapter serves anything."""
        return pod in self._adapters and bool(self._adapters[pod].serving)

    def calm_down(self) -> None:
        """From now on all adapters keep the contract."""
        self._calm = True
        for adapter in self._adapters.values():
            adapter.never, adapter.silent = "", False
            adapter.delay_s = min(adapter.delay_s, DELAYS_S[0])
            adapter.woken.set()

    def on_change(self, kind: tuple[str, str], change: Change) -> None:
        """A pod was written or has gone."""
        if kind[1] != "pods":
            return
        after = change.after.obj if change.after is not None else None
        before = change.before.obj if change.before is not None else None
        name = (after or before or {})["metadata"]["name"]
        known = self._adapters.get(name)
        if known is not None and (after is None or after["metadata"]["uid"] != known.uid):
            self._end(name)
            known = None
        if after is None or POOL not in (after["metadata"].get("labels") or {}):
            return
        text = (after["metadata"].get("annotations") or {}).get(ASSIGNMENT)
        if known is None and text is not None and is_ready(after):
            known = self._start(name, after)
        if known is not None and text is not None and self._newest.get(name) != text:
            self._newest[name] = text
            known.woken.set()

    def _start(self, name: str, pod: Obj) -> SimulatedAdapter:
        rng, calm = self._rng, self._calm
        delay_s, dice = rng.choice(DELAYS_S), rng.random()
        never = rng.choice(("Prepare", "Serve", "Drain")) if dice < STUCK_SHARE else ""
        silent = dice > 1.0 - SILENT_SHARE
        adapter = SimulatedAdapter(
            pod["metadata"]["uid"],
            min(delay_s, DELAYS_S[0]) if calm else delay_s,
            "" if calm else never,
            silent and not calm,
        )
        self._adapters[name] = adapter
        self._tasks[name] = self._run(self._work(name, adapter), f"adapter {name}")
        return adapter

    def _end(self, name: str) -> None:
        """The process is gone with its pod."""
        self._adapters.pop(name, None)
        self._newest.pop(name, None)
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()

    # -- one adapter -------------------------------------------------------------------------------

    async def _work(self, name: str, adapter: SimulatedAdapter) -> None:
        said: list[bytes] = []
        while True:
            await adapter.woken.wait()
            adapter.woken.clear()
            assignment = orjson.loads(self._newest[name])
            shares = assignment["shares"]
            adapter.told = assignment
            busy = {key for key, share in shares.items() if not _does(adapter, key, share)}
            if busy:
                said.append(_body(assignment, busy))
                await self._say(name, adapter, said)
                drains = any(shares[key]["state"] == "Drain" for key in busy)
                least_s = self.serves_on_s if drains else 0.0
                await asyncio.sleep(max(least_s, adapter.delay_s * self._rng.random()))
            self._do(name, adapter, shares)
            busy = {key for key in shares if shares[key]["state"] == adapter.never} & busy
            said.append(_body(assignment, busy))
            if not await self._say(name, adapter, said) or busy:
                asyncio.get_running_loop().call_later(RETRY_S, adapter.woken.set)
            del said[:-2]

    def _do(self, name: str, adapter: SimulatedAdapter, shares: Mapping[str, Any]) -> None:
        for key in [*adapter.serving]:
            share = shares.get(key)
            if share is None or (share["state"] == "Drain" and adapter.never != "Drain"):
                del adapter.serving[key]
        adapter.prepared &= shares.keys()
        for key, share in shares.items():
            if share["state"] == adapter.never:
                continue
            if share["state"] == "Prepare":
                adapter.prepared.add(key)
            elif share["state"] == "Serve":
                adapter.serving[key] = share["vreplicas"]
        self._trace(f"    adapter of {name} serves {adapter.serving}")

    async def _say(self, name: str, adapter: SimulatedAdapter, said: list[bytes]) -> bool:
        """Send the last of ``said``, perhaps with an older one. Return whether it was taken."""
        if adapter.silent:
            return True
        if self._rng.random() < REPEATED_SHARE:
            await self._send(name, adapter, self._rng.choice(said))
        return await self._send(name, adapter, said[-1]) == 200

    async def _send(self, name: str, adapter: SimulatedAdapter, body: bytes) -> int:
        replicas = self._replicas()
        if not replicas:
            return 503
        replica = self._rng.choice(replicas)
        try:
            status, reply = await replica.acknowledge(name, adapter.uid, body, TIMEOUT_S)
        except TransportError as error:
            self._trace(f"    acknowledgement of {name} at {replica.name}: {error}")
            return 503
        self._trace(f"    acknowledgement of {name} at {replica.name}: {status}")
        if status == 200:
            adapter.heard = max(adapter.heard, orjson.loads(reply)["generation"])
        elif status not in TRY_AGAIN:
            self._problems.append(f"{name} said {body!r} and was answered {status} {reply!r}")
        return status


def _does(adapter: SimulatedAdapter, key: str, share: Mapping[str, Any]) -> bool:
    """Whether it does already what the share's state asks."""
    if share["state"] == "Serve":
        return bool(adapter.serving.get(key) == share["vreplicas"])
    if share["state"] == "Prepare":
        return key in adapter.prepared
    return key not in adapter.serving


def _body(assignment: Mapping[str, Any], busy: set[str]) -> bytes:
    done = {key: share["state"] for key, share in assignment["shares"].items() if key not in busy}
    return orjson.dumps(
        {
            "uid": assignment["uid"],
            "generation": assignment["generation"],
            "serving": [key for key, state in done.items() if state == "Serve"],
            "drained": [key for key, state in done.items() if state == "Drain"],
            "busy": sorted(busy),
        }
    )
