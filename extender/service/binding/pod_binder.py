"""``PodBinder``: one bind request from beginning to end, around ``VReplicaBinder``.

::

    request --> known? (cache, else read) --> there already? (I5) --> past known? (I2)
                  ^            |                                           |
                  |            |                                           '--> assume --> Binding
                  |            '-- no adapter pod --> Binding, and no more                    |
                  '--- read again, up to ATTEMPTS_MAX times, where only the pod's version ----'
                       was stale

A kube-scheduler of our own asks about every pod that names it. A pod without the pool's label is
bound as kube-scheduler's DefaultBinder would: a Binding with the pod's UID, without annotations,
and nothing is assumed.

kube-scheduler gives a bind up after its timeout and sends it again, perhaps to another replica,
while the first may still be under way. So the requests for one pod run one after the other here,
and between replicas the API server decides.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from extender.kube.api import PODS, Api, Binding, Conflict, Obj, OutcomeUnknown
from extender.model.decode import is_adapter, pod_from
from extender.model.names import SCHEDULER_NAMES
from extender.model.objects import AdapterPod
from extender.model.reasons import ConflictReason
from extender.service.binding.binder import AssumedPod, BindRefused, VReplicaBinder
from extender.service.placing.committer import RESERVATION_TTL_S
from extender.service.watching.caches import Caches


@dataclass(slots=True)
class _Flight:
    """Bind requests of one pod, of which one runs at a time. ``users``: how many there are."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class PodBinder:
    """One bind request from beginning to end: read, assume, write.

    A pod whose ordinal's past is not known here is refused (``knows_past``, see
    ``ordinal_history_reader``).

    A Binding of which nobody knows whether it arrived is *in doubt*: what was assumed for it stays
    until the watch tells, until the pod is to be bound again, or for ``RESERVATION_TTL_S``,
    whichever is first (I5).
    """

    ATTEMPTS_MAX: Final = 3

    def __init__(
        self,
        api: Api,
        caches: Caches,
        binder: VReplicaBinder,
        *,
        knows_past: Callable[[AdapterPod], Awaitable[bool]],
        on_bound: Callable[[str, float], None] = lambda _uid, _sent_at: None,
        scheduler_names: frozenset[str] = SCHEDULER_NAMES,
    ) -> None:
        self._knows_past = knows_past
        self._on_bound = on_bound
        self.scheduler_names = scheduler_names
        """May be changed at work: each bind looks."""
        self._api = api
        self._caches = caches
        self._binder = binder
        self._in_flight: dict[str, _Flight] = {}
        self._in_doubt: dict[str, tuple[AssumedPod, asyncio.TimerHandle]] = {}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Bind the pod to the node; a pod that is there already is success (I5). Raises
        BindRefused, ApiError.

        Nothing in the request is believed: the pod is looked up, and read again wherever the cache
        may be behind.
        """
        flight = self._in_flight.setdefault(uid, _Flight())
        flight.users += 1
        try:
            async with flight.lock:
                await self._bind(namespace, name, uid, node)
        finally:
            flight.users -= 1
            if not flight.users:
                del self._in_flight[uid]

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        pod = self._known(f"{namespace}/{name}", uid)
        if pod is None:
            obj = await self._api.get(PODS, namespace, name)
            if not is_adapter(obj):
                await self._bind_plainly(pod_from(obj), uid, node)
                return
            pod = self._taken(obj)
        await self._bind_adapter(pod, uid, node)

    async def _bind_adapter(self, pod: AdapterPod, uid: str, node: str) -> None:
        for attempt in range(self.ATTEMPTS_MAX):
            if self._settled(pod, uid, node):
                return
            assumed = await self._assume(pod, uid, node)
            if assumed is None:
                return
            sent_at = asyncio.get_running_loop().time()
            try:
                await self._binder.bind(assumed)
            except (OutcomeUnknown, asyncio.CancelledError):
                self._doubt(assumed)
                raise
            except Conflict:
                self._binder.revert(assumed)
                if attempt + 1 == self.ATTEMPTS_MAX:
                    raise
                pod = await self._read(pod.namespace, pod.name)
            except BaseException:
                self._binder.revert(assumed)
                raise
            else:
                self._on_bound(uid, sent_at)
                return

    def _known(self, key: str, uid: str) -> AdapterPod | None:
        """The pod as the cache has it; None where it has to be read."""
        pod, believed = self._caches.pods.latest(key), self._caches.pods.get(key)
        in_doubt = self._end_doubt(uid)
        # An assumed pod is bound already, as far as we know: its watch event is still to come.
        assumed_before = in_doubt or (believed is not None and believed.assumed)
        return None if pod is None or pod.uid != uid or assumed_before else pod

    async def _bind_plainly(self, pod: AdapterPod, uid: str, node: str) -> None:
        """Bind a pod that is no adapter. Its UID alone is compared: whatever else has changed, it
        needs a node.
        """
        if not self._settled(pod, uid, node):
            await self._api.bind(Binding(pod.namespace, pod.name, node, uid=uid))

    async def _assume(self, pod: AdapterPod, uid: str, node: str) -> AssumedPod | None:
        """None where the pod is there already: what refuses it may be that our view is
        behind (I5).
        """
        try:
            await self._check_past(pod)
            return self._binder.assume(pod, node)
        except BindRefused:
            if self._settled(await self._read(pod.namespace, pod.name), uid, node):
                return None
            raise

    async def _check_past(self, pod: AdapterPod) -> None:
        pool = self._caches.state.pools.get(pod.pool)
        if pool is None or pool.adapter_pool is None:
            return  # refused for that, and no list will change it
        if not await self._knows_past(pod):
            raise BindRefused(
                ConflictReason.CATCHING_UP, f"what {pod.name} held before is not known here"
            )

    def _settled(self, pod: AdapterPod, uid: str, node: str) -> bool:
        if pod.uid != uid:
            raise BindRefused(ConflictReason.POD_CHANGED, f"pod {pod.key} is another one now")
        if pod.node and pod.node != node:
            raise BindRefused(
                ConflictReason.POD_ALREADY_BOUND, f"pod {pod.key} is on node {pod.node}"
            )
        if pod.deleting or pod.finished:
            raise BindRefused(
                ConflictReason.POD_CHANGED, f"pod {pod.key} is being deleted or has finished"
            )
        if not pod.node and pod.scheduler_name not in self.scheduler_names:
            raise BindRefused(
                ConflictReason.OTHER_SCHEDULER,
                f"pod {pod.key} has spec.schedulerName {pod.scheduler_name!r:.260}, and this "
                f"service binds for "
                f"{', '.join(sorted(self.scheduler_names))} (schedulerNames in its configuration)",
            )
        return bool(pod.node)

    def _doubt(self, assumed: AssumedPod) -> None:
        uid = assumed.pod.uid
        expiry = asyncio.get_running_loop().call_later(RESERVATION_TTL_S, self._end_doubt, uid)
        self._in_doubt[uid] = (assumed, expiry)

    def _end_doubt(self, uid: str) -> bool:
        """Undo what an earlier Binding in doubt has assumed; True if there was one."""
        assumed, expiry = self._in_doubt.pop(uid, (None, None))
        if assumed is None or expiry is None:
            return False
        expiry.cancel()
        self._binder.revert(assumed)
        return True

    async def _read(self, namespace: str, name: str) -> AdapterPod:
        return self._taken(await self._api.get(PODS, namespace, name))

    def _taken(self, obj: Obj) -> AdapterPod:
        pod = pod_from(obj)
        self._caches.pods.written(pod)
        return pod
