"""``Replica``: one process of the shipped service in a simulated world. It can be killed and
paused, and its clock can be wrong.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from extender.config.load_sources import LoadSource
from extender.config.model import Config, LeaderElectionConfig
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.kube.token_review import TokenUser
from extender.lab.clock import PROCESS, VirtualTimeLoop, wall_clock
from extender.lab.faults import Answer, Crashed, FaultyApi
from extender.lab.scheduler.extender_transport import TIMED_OUT, TransportError
from extender.lab.simulation.world.configuration import SOURCE_DOCUMENT, all_profiles
from extender.lab.simulation.world.scale import LEASE, NS, Scale
from extender.model.errors import HistoryReplaced, WireError
from extender.model.names import OWN_NAMESPACE
from extender.model.objects import object_key
from extender.service.app import Service
from extender.service.binding.verbs import ERROR
from extender.service.http.adapters.callers import AdapterCaller
from extender.service.pools.load_polling import LoadServer

DEADLINE_S: Final = 4.0

T = TypeVar("T")


class Replica:
    """One process of the service: its API, its clock, its ``Service`` and its tasks. ``crash`` is
    SIGKILL, ``pause`` is SIGSTOP.
    """

    def __init__(
        self,
        name: str,
        api: FaultyApi,
        rng: random.Random,
        *,
        lease: str = LEASE,
        scale: Scale,
        load_server: Callable[[LoadSource], LoadServer],
    ) -> None:
        self.name = name
        self.rival = lease != LEASE
        """Whether it has a Lease of its own, and so leads beside any other leader."""
        self.api = api
        self._resumed_at_s = asyncio.get_running_loop().time()
        self.clock_ahead_s = 0.0
        """By how much its wall clock is ahead. Its monotonic clock is correct."""
        self._context = copy_context()
        self._context.run(PROCESS.set, name)
        election = LeaderElectionConfig(
            resource_namespace=OWN_NAMESPACE, resource_name=lease, buckets=scale.buckets
        )
        config = Config(
            leader_election=election,
            narrow_to=scale.narrow_to,
            load_sources=(SOURCE_DOCUMENT,),
        )
        self.service = self._context.run(
            partial(
                Service,
                api,
                config,
                now=self.now,
                rng=rng,
                serve=False,
                profiles=all_profiles() if scale.own_profiles else BUILT_IN_PROFILES,
                load_server=load_server,
            )
        )
        self._schedule = self.service.schedule_verb()
        self._acknowledge = self.service.acknowledge_verb(self.service.load_verb())
        self.task = self._spawn(self.service.run())
        self.verbs: set[asyncio.Task[tuple[bytes, str]]] = set()
        api.on_crash = self._crashed

    def now(self) -> float:
        """Return its wall clock, in epoch seconds."""
        return wall_clock() + self.clock_ahead_s

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return asyncio.get_running_loop().create_task(work, name=self.name, context=self._context)

    @property
    def ready(self) -> bool:
        """Whether kube-proxy sends it requests. A paused process still gets them for a while."""
        return not self.api.crashed and not self.task.done() and not self.service.health.problems()

    def crash(self) -> None:
        """SIGKILL."""
        self.api.crash()

    @property
    def lease_versions(self) -> list[int]:
        """The newest version that it has seen of each Lease; 0: none."""
        electors = self.service.leadership.electors
        return [
            int(elector.seen.record.get("metadata", {}).get("resourceVersion", 0))
            for elector in electors
        ]

    @property
    def runs_since_s(self) -> float:
        """The loop time since which it has run without a break; inf if it does not run."""
        stands = self.api.crashed or self.task.done() or self.paused
        return inf if stands else self._resumed_at_s

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return _loop().is_paused(self.name)

    def pause(self) -> None:
        """Pause it (SIGSTOP), unless it is dead."""
        if not self.api.crashed:
            _loop().pause(self.name)

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        if self.paused:
            _loop().resume(self.name)
            self._resumed_at_s = _loop().time()

    def _crashed(self) -> None:
        # SIGKILL also ends a paused process, even with an answer under way.
        self.resume()
        self.task.cancel()
        for task in self.verbs:
            task.cancel()

    async def answer(self, verb: str, body: bytes, timeout_s: float) -> Answer:
        """Return the answer of its HTTP server to an extender call. Raises TransportError."""
        try:
            async with asyncio.timeout(min(DEADLINE_S, timeout_s)):
                task = self._spawn(self._run(verb, body))
                self.verbs.add(task)
                task.add_done_callback(self.verbs.discard)
                reply, _ = await task
        except WireError as error:
            return error.status, str(error).encode()
        except TimeoutError:
            if timeout_s <= DEADLINE_S or self.paused:
                raise TransportError(TIMED_OUT) from None
            return 504, b"not answered in time"
        except (Crashed, asyncio.CancelledError):
            # The caller may have been cancelled while it waited for a paused process. It must not
            # survive this replica's end.
            if not self.api.crashed or _is_cancelled():
                raise
            raise TransportError("EOF") from None
        # A killed process has not answered, whatever the result was.
        if self.api.crashed:
            raise TransportError("EOF")
        return 200, reply

    async def schedule(self, body: bytes, timeout_s: float) -> Answer:
        """Return the answer of its HTTP server to ``POST /v1/schedule``. Raises TransportError.

        A request that has arrived is served even if its caller is gone.
        """
        if not self.ready and not self.paused:
            raise TransportError("dial tcp 127.0.0.1:10261: connect: connection refused")
        return await self._answer_of(self._spawn(self._schedule.schedule(body)), timeout_s)

    async def _answer_of(self, task: "asyncio.Task[tuple[bytes, str]]", timeout_s: float) -> Answer:
        self.verbs.add(task)
        task.add_done_callback(self.verbs.discard)
        task.add_done_callback(_tell_unexpected)
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise TransportError(TIMED_OUT)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WireError):
            return error.status, str(error).encode()
        if self.api.crashed:
            raise TransportError("EOF")
        return 200, task.result()[0]

    async def acknowledge(self, pod: str, uid: str, body: bytes, timeout_s: float) -> Answer:
        """Return the answer of its HTTP server to ``POST /v1/acknowledge`` of an adapter. Raises
        TransportError.
        """
        if not self.ready and not self.paused:
            raise TransportError("dial tcp 127.0.0.1:10264: connect: connection refused")
        caller = AdapterCaller(TokenUser("adapter"), object_key(NS, pod), uid)
        task = self._spawn(self._acknowledge.acknowledge(caller, body))
        return await self._answer_of(task, timeout_s)

    def report_load(self, body: bytes) -> None:
        """Send it a ``POST /v1/load``, if it is ready. Nobody looks at the answer."""
        if not self.ready or self.paused:
            return
        task = self._spawn(self.service.load_verb().take(body))
        self.verbs.add(task)
        task.add_done_callback(self.verbs.discard)
        task.add_done_callback(_tell_unexpected)

    async def _run(self, verb: str, body: bytes) -> tuple[bytes, str]:
        verbs = self.service.verbs
        if verb == "bind":
            return await verbs.bind(body)
        at_once = {"filter": verbs.filter, "prioritize": verbs.prioritize, "preempt": verbs.preempt}
        return at_once.get(verb, lambda _: (b"", ERROR))(body)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _tell_unexpected(task: "asyncio.Task[Any]") -> None:
    """Report an unexpected error, even of a task that nobody awaits."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, WireError) and not is_crash(error):
        _loop().call_exception_handler({"message": f"{task.get_name()} ended", "exception": error})


def _loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def is_crash(error: BaseException) -> bool:
    """Return whether an error comes only from the simulated SIGKILL."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_crash(inner) for inner in error.exceptions)
    return isinstance(error, Crashed | asyncio.CancelledError)


def is_replaced(error: BaseException) -> bool:
    """Return whether a process ends because etcd has another history than it knows."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_replaced(inner) for inner in error.exceptions)
    return isinstance(error, HistoryReplaced)
