"""``DemoAdapters``: an adapter in each adapter pod, as its container would be. Each is the worker
of the adapters' library (``clients/python/examples``), and talks with the service over TLS.

The library is a distribution of its own. Where it cannot be imported (``vreplica run`` of an
installed wheel), the demonstration has no adapters: then nobody does any work.

``Work`` is what the workers do. It counts pieces, and for how long nobody served a vreplica.
"""

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

from extender.kube.api import PODS, VPODS, Api, ListOptions, Obj
from extender.lab.demo.local import AdapterAccess
from extender.lab.http.server import bound_token
from extender.lab.informer import Informer
from extender.model.decode import pod_from, vpod_from
from extender.model.names import POOL_LABEL
from extender.model.objects import AdapterPod

LIBRARY: Final = "vreplica_adapter"
EXAMPLE: Final = Path("examples/worker.py")
"""Beside the library's package."""
PIECE_S: Final = 0.25
"""One piece of work."""
GRACE_S: Final = 2.0


WorkOn: TypeAlias = Callable[[str, int | None, int], Awaitable[None]]
"""vpod, index of the vreplica (None without indexes), epoch."""


class Worker(Protocol):
    """The example's class."""

    async def run(self, **arguments: object) -> None:
        """Be the adapter of one pod until cancelled."""


def load_worker() -> Callable[[WorkOn], Worker] | None:
    """Return the example's class; None if the library's source is not there."""
    library = find_spec(LIBRARY)
    if library is None or library.origin is None:
        return None
    file = Path(library.origin).parent.parent / EXAMPLE
    spec = spec_from_file_location("vreplica_adapter_example", file)
    if not file.exists() or spec is None or spec.loader is None:
        return None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Any", module).Worker  # type: ignore[no-any-return]


class Work:
    """Pieces of work. ``done``: how many are finished.

    A worker does one piece at a time for each vreplica that it serves. So while fewer pieces of a
    vpod are under way than it has published vreplicas, nobody serves some of these: a pause.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.done = 0
        self._running = Counter[str]()
        self._published = Counter[str]()
        self._paused_at: dict[str, float] = {}
        """vpod -> since when it has a pause."""
        self._longest_ended_s = 0.0

    @property
    def longest_pause_s(self) -> float:
        """The longest pause of a vpod, also if it has not ended."""
        now = self._clock()
        return max([self._longest_ended_s, *(now - at for at in self._paused_at.values())])

    def count_anew(self) -> None:
        """Forget the pauses so far."""
        self._longest_ended_s = 0.0
        self._paused_at = dict.fromkeys(self._paused_at, self._clock())

    def publish(self, vpod: str, vreplicas: int) -> None:
        """Take that so many vreplicas of a vpod are to be served from now on."""
        self._published[vpod] = vreplicas
        self._look(vpod)

    def _look(self, vpod: str) -> None:
        if self._running[vpod] < self._published[vpod]:
            self._paused_at.setdefault(vpod, self._clock())
        elif (at := self._paused_at.pop(vpod, None)) is not None:
            self._longest_ended_s = max(self._longest_ended_s, self._clock() - at)

    async def piece(self, vpod: str, _index: int | None, _epoch: int) -> None:
        """Do one piece for a vpod."""
        self._running[vpod] += 1
        self._look(vpod)
        try:
            await asyncio.sleep(PIECE_S)
            self.done += 1
        finally:
            self._running[vpod] -= 1
            self._look(vpod)


class DemoAdapters:
    """Runs the adapters until cancelled. ``access``: how they reach the service."""

    def __init__(
        self,
        worker: Callable[[WorkOn], Worker],
        access: AdapterAccess,
    ) -> None:
        # One that is killed would tell of each share that it has not let go.
        logging.getLogger(LIBRARY).setLevel(logging.ERROR)
        self._worker = worker
        self._access = access
        self.work = Work()
        self._running: dict[str, asyncio.Task[None]] = {}
        """By the pod's UID."""

    async def follow(self, api: Api) -> None:
        """Start an adapter in each pod that is Ready, and end it with its pod."""
        pods = Informer(api, PODS, ListOptions(label_selector=POOL_LABEL))
        pods.on_change(self._pod)
        vpods = Informer(api, VPODS)
        vpods.on_change(self._vpod)
        try:
            await asyncio.gather(pods.run(), vpods.run())
        finally:
            ending = list(self._running.values())
            for uid in list(self._running):
                self.kill(uid)
            await asyncio.gather(*ending, return_exceptions=True)

    def _vpod(self, before: Obj | None, after: Obj | None) -> None:
        """Tell the work how much of a vpod is published."""
        if after is not None:
            vpod = vpod_from(after)
            self.work.publish(vpod.key, sum(vpod.placements.values()))
        elif before is not None:
            self.work.publish(vpod_from(before).key, 0)

    def _pod(self, before: Obj | None, after: Obj | None) -> None:
        if after is None:
            if before is not None:
                self.kill(before["metadata"]["uid"])
            return
        pod = pod_from(after)
        if pod.deleting:
            self._terminate(pod.uid)
        elif pod.ready and pod.uid not in self._running:
            name = f"adapter {pod.name}"
            self._running[pod.uid] = asyncio.create_task(self._run(pod), name=name)

    async def _run(self, pod: AdapterPod) -> None:
        token_file = self._access.directory / f"adapter-{pod.uid}"
        token_file.write_text(bound_token(pod.namespace, "default", pod.name, pod.uid))
        await self._worker(self.work.piece).run(
            urls=[self._access.url],
            token_file=token_file,
            ca_file=self._access.ca_file,
            assignment_file=self._access.directory / "none",
            handle_sigterm=False,
            grace_s=GRACE_S,
        )

    def _terminate(self, uid: str) -> None:
        """As SIGTERM: it lets go of everything first."""
        if (task := self._running.get(uid)) is not None:
            task.cancel()

    def kill(self, uid: str) -> None:
        """As SIGKILL, or if the power of its node fails."""
        if (task := self._running.pop(uid, None)) is not None:
            task.cancel()
            # The first one begins the end, and the second one does not wait for it.
            asyncio.get_running_loop().call_soon(task.cancel)
