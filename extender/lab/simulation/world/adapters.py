"""``SimulatedAdapters``: a process in each Ready pod of the pools that hand shares over (the part
``handoff``). It does what its assignment says, and acknowledges it at any replica.

A seed's adapters are of several kinds. Most are prompt or take seconds. Some never do what one
state asks for, until the calm. Some never acknowledge: they are without the contract. All of them
send an acknowledgement twice at times, and say again what they have said before. ``adapter`` tells
checkers what a pod's adapter really serves.

Some hear of each assignment some seconds late, as from a file.

In an exclusive pool they keep their leases, by clocks that are up to 10 % wrong. There they are cut
off at times, for longer than their lease: they hear nothing and say nothing. They are also paused,
between the moment from which they count a lease and the request. A process whose pod is gone
although nobody saw its containers stop goes on until its lease has run out.
"""

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from extender.kube.api import Obj
from extender.lab.apiserver.store import Change
from extender.lab.scheduler.extender_transport import TransportError
from extender.lab.simulation.world.callers import CALLERS
from extender.lab.simulation.world.facts import ASSIGNMENT, POOL, is_ready
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import pool_of
from extender.model.decode import pod_from
from extender.model.indexes import indexes_from

RETRY_S: Final = 1.0
TIMEOUT_S: Final = 5.0
REPEATED_SHARE: Final = 0.05
DELAYS_S: Final = (0.1, 0.1, 0.5, 3.0, 20.0)
"""An adapter takes up to so long for what it is told."""
STUCK_SHARE: Final = 0.1
SILENT_SHARE: Final = 0.1
LATE_SHARE: Final = 0.2
LATE_S: Final = 4.5
"""Less than the shortest lease: an adapter that does not know that its pool has become exclusive
may serve for as long as it has not heard of that (docs/handover.md).
"""
CUT_OFF_SHARE: Final = 0.3
"""Of the times at which an adapter with a lease wakes."""
HANG_SHARE: Final = 0.1
"""Of those at which it is cut off: for so long that the service notices."""
HANG_S: Final = 300.0
PAUSED_SHARE: Final = 0.05
"""Of the acknowledgements of an adapter with a lease: its process is paused before one is sent."""
CLOCKS_WRONG: Final = 0.1
"""How much faster or slower than the leader's an adapter's clock may run (docs/handover.md)."""
LEASE_PART: Final = 0.9
"""Of a lease that an adapter uses, as docs/adapters.md asks for."""


class Served(NamedTuple):
    """What an adapter serves of a vpod. ``indexes``: a set of ``model.indexes``."""

    vreplicas: int = 0
    indexes: int = 0


OnServe = Callable[[str, str, list[tuple[str, Served]]], None]
"""Called with a pod, a vpod, and what each pod serves of it."""

TRY_AGAIN: Final = (403, 404, 409, 429, 503, 504)
"""Answers after which an adapter says the same again."""


@dataclass
class SimulatedAdapter:
    """The adapter of one pod. ``serving``: by vpod; ``prepared``: vpods."""

    uid: str
    delay_s: float
    never: str
    """The state that it does not get to while it is stuck; "" for none."""
    silent: bool
    serving: dict[str, "Served"] = field(default_factory=dict)
    prepared: set[str] = field(default_factory=set)
    told: Mapping[str, Any] | None = None
    """The assignment that it acts on."""
    heard: int = 0
    """The newest generation of which a replica has taken an acknowledgement."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    alarm: asyncio.TimerHandle | None = None
    """What wakes it next, if no assignment does."""
    latest: str = ""
    """The text of its assignment, as it is stored."""
    newest: str = ""
    """The same, as it has heard."""
    late_s: float = 0.0
    """It hears of an assignment so much later."""
    clock_rate: float = 1.0
    lease_until: float = -math.inf
    """The loop's time. Without effect if the assignment has no lease."""
    cut_until: float = -math.inf
    gone: bool = False
    """Whether its pod does not exist any more."""
    takes_s: float = 0.0
    """How long it takes for what it does now; 0 if it waits for news."""

    @property
    def is_well(self) -> bool:
        """Whether it keeps the contract, within seconds. A slow one that has begun something before
        the calm ends that first (seed 590000862).
        """
        is_prompt = max(self.delay_s, self.takes_s) <= DELAYS_S[-2] and not self.late_s
        return is_prompt and not self.never and not self.silent

    @property
    def lease_s(self) -> float:
        """What its assignment says; 0 for none."""
        return float((self.told or {}).get("leaseSeconds", 0))

    def wake_at(self, when: float) -> None:
        """Wake it at the loop's time ``when`` instead of when it was to be woken before."""
        if self.alarm is not None:
            self.alarm.cancel()
        self.alarm = asyncio.get_running_loop().call_at(when, self.woken.set)

    def hear(self) -> None:
        """Take the assignment that is stored now."""
        if self.newest != self.latest:
            self.newest = self.latest
            self.woken.set()

    def may_serve(self, now: float) -> bool:
        """Whether it needs no lease, or has one."""
        return not self.lease_s or now < self.lease_until


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
        self._left_behind: list[tuple[str, SimulatedAdapter]] = []
        """Pod name and adapter of those whose pods are gone, and which perhaps go on."""
        self.on_serve: OnServe = lambda _pod, _vpod, _served: None
        self._calm = False
        self.serves_on_s = 0.0
        """How long an adapter at least serves a share that it is told to drain."""

    def adapter(self, pod: str) -> SimulatedAdapter | None:
        """The adapter that runs in a pod."""
        return self._adapters.get(pod)

    def serves(self, pod: str) -> bool:
        """Whether the pod's adapter serves anything that can be handed over. Vpods of callers
        cannot (seed 16).
        """
        adapter = self._adapters.get(pod)
        return adapter is not None and not all(key.endswith(CALLERS) for key in adapter.serving)

    def calm_down(self) -> None:
        """From now on all adapters keep the contract."""
        self._calm = True
        for adapter in self._adapters.values():
            adapter.never, adapter.silent, adapter.cut_until = "", False, -math.inf
            adapter.delay_s, adapter.late_s = min(adapter.delay_s, DELAYS_S[0]), 0.0
            adapter.hear()
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
            self._end(name, stopped=not known.lease_s)
            known = None
        if after is None or POOL not in (after["metadata"].get("labels") or {}):
            return
        if pod_from(after).stopped:
            self._end(name, stopped=True)
            return
        text = (after["metadata"].get("annotations") or {}).get(ASSIGNMENT)
        if known is None and text is not None and is_ready(after):
            known = self._start(name, after)
        if known is None or text is None:
            return
        known.latest = text
        if known.late_s and known.newest:
            asyncio.get_running_loop().call_later(known.late_s, known.hear)
        else:
            known.hear()

    def _start(self, name: str, pod: Obj) -> SimulatedAdapter:
        rng, calm = self._rng, self._calm
        delay_s, dice = rng.choice(DELAYS_S), rng.random()
        never = rng.choice(("Prepare", "Serve", "Drain")) if dice < STUCK_SHARE else ""
        silent = dice > 1.0 - SILENT_SHARE
        late_s = LATE_S * rng.random() if rng.random() < LATE_SHARE else 0.0
        adapter = SimulatedAdapter(
            pod["metadata"]["uid"],
            min(delay_s, DELAYS_S[0]) if calm else delay_s,
            "" if calm else never,
            silent and not calm,
            clock_rate=1.0 + CLOCKS_WRONG * rng.uniform(-1.0, 1.0),
            late_s=0.0 if calm else late_s,
        )
        self._adapters[name] = adapter
        self._tasks[name] = self._run(self._work(name, adapter), f"adapter {name}")
        return adapter

    def _end(self, name: str, *, stopped: bool) -> None:
        """The pod is gone. If its process has not stopped, it does not know."""
        adapter, task = self._adapters.pop(name, None), self._tasks.pop(name, None)
        if adapter is None or task is None:
            return
        adapter.gone = True
        if stopped:
            task.cancel()
        else:
            self._left_behind.append((name, adapter))

    def _served(self, pod: str, key: str) -> list[tuple[str, Served]]:
        """Name of each pod of the same pool that serves a vpod, and what."""
        now = asyncio.get_running_loop().time()
        self._left_behind = [one for one in self._left_behind if one[1].may_serve(now)]
        return [
            (name, adapter.serving[key])
            for name, adapter in (*self._adapters.items(), *self._left_behind)
            if key in adapter.serving and pool_of(name) == pool_of(pod) and adapter.may_serve(now)
        ]

    # -- one adapter -------------------------------------------------------------------------------

    async def _work(self, name: str, adapter: SimulatedAdapter) -> None:
        loop = asyncio.get_running_loop()
        said: list[bytes] = []
        while True:
            await adapter.woken.wait()
            adapter.woken.clear()
            if self._is_cut_off(adapter, loop.time()):
                adapter.wake_at(adapter.cut_until)
                continue
            if not adapter.may_serve(loop.time()):
                adapter.serving.clear()
                if adapter.gone:
                    return
            assignment = orjson.loads(adapter.newest)
            shares = assignment["shares"]
            adapter.told = assignment
            busy = {key for key, share in shares.items() if not _does(adapter, key, share)}
            if busy:
                said.append(_body(assignment, busy))
                await self._say(name, adapter, said)
                drains = any(shares[key]["state"] == "Drain" for key in busy)
                least_s = self.serves_on_s if drains else 0.0
                delay_s = max(least_s, adapter.delay_s * self._rng.random())
                adapter.takes_s = delay_s
                await self._sleep(name, adapter, said, delay_s)
            adapter.takes_s = 0.0
            self._do(name, adapter, shares)
            busy = {key for key in busy if not _does(adapter, key, shares[key])}
            said.append(_body(assignment, busy))
            if not await self._say(name, adapter, said) or busy:
                adapter.wake_at(loop.time() + RETRY_S)
            elif adapter.lease_s:
                adapter.wake_at(loop.time() + adapter.lease_s / 3)
            del said[:-2]

    def _is_cut_off(self, adapter: SimulatedAdapter, now: float) -> bool:
        may_begin = adapter.lease_s and now >= adapter.cut_until and not self._calm
        if may_begin and self._rng.random() < CUT_OFF_SHARE:
            hangs = self._rng.random() < HANG_SHARE
            longest_s = HANG_S if hangs else 2.5 * adapter.lease_s
            adapter.cut_until = now + self._rng.uniform(0.1 * adapter.lease_s, longest_s)
        return now < adapter.cut_until

    async def _sleep(
        self, name: str, adapter: SimulatedAdapter, said: list[bytes], delay_s: float
    ) -> None:
        """It works on what it is told. It keeps its lease meanwhile."""
        while adapter.lease_s and delay_s > adapter.lease_s / 3:
            delay_s -= adapter.lease_s / 3
            await asyncio.sleep(adapter.lease_s / 3)
            await self._say(name, adapter, said)
        await asyncio.sleep(delay_s)

    def _do(self, name: str, adapter: SimulatedAdapter, shares: Mapping[str, Any]) -> None:
        may_serve = adapter.may_serve(asyncio.get_running_loop().time())
        if not may_serve:
            adapter.serving.clear()
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
            elif share["state"] == "Serve" and may_serve:
                before, now = adapter.serving.get(key, Served()), _served(share)
                adapter.serving[key] = now
                more = now.vreplicas > before.vreplicas or now.indexes & ~before.indexes
                if adapter.lease_s and more:
                    self.on_serve(name, key, self._served(name, key))
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
        sent_at = asyncio.get_running_loop().time()
        if adapter.lease_s and not self._calm and self._rng.random() < PAUSED_SHARE:
            await asyncio.sleep(self._rng.uniform(0.1, 2.5) * adapter.lease_s)
        try:
            status, reply = await replica.acknowledge(name, adapter.uid, body, TIMEOUT_S)
        except TransportError as error:
            self._trace(f"    acknowledgement of {name} at {replica.name}: {error}")
            return 503
        self._trace(f"    acknowledgement of {name} at {replica.name}: {status}")
        if status == 200:
            adapter.heard = max(adapter.heard, orjson.loads(reply)["generation"])
            until = sent_at + LEASE_PART * adapter.lease_s / adapter.clock_rate
            adapter.lease_until = max(adapter.lease_until, until)
        elif status not in TRY_AGAIN:
            self._problems.append(f"{name} said {body!r} and was answered {status} {reply!r}")
        return status


def _does(adapter: SimulatedAdapter, key: str, share: Mapping[str, Any]) -> bool:
    """Whether it does already what the share's state asks."""
    if share["state"] == "Serve":
        return adapter.serving.get(key) == _served(share)
    if share["state"] == "Prepare":
        return key in adapter.prepared
    return key not in adapter.serving


def _served(share: Mapping[str, Any]) -> Served:
    return Served(share["vreplicas"], indexes_from(share.get("indexes", "")))


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
