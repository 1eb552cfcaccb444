"""``PodBinder``: handles one bind request from beginning to end, with ``VReplicaBinder``.

::

    request --> known? (cache, else read) --> on the node already? (I5) --> past known? (I2)
                  ^            |                                           |
                  |            |                                           '--> assume --> Binding
                  |            |-- no adapter pod --> Binding, and no more                    |
                  |            '-- pool not served here --> refused                           |
                  '--- read again if the pod's version was stale (ATTEMPTS_MAX attempts) -----'

*Past known* means that this replica knows what the ordinal's former pods held.

``PodBinder`` binds a pod that is no adapter as kube-scheduler's DefaultBinder does: it sends a
Binding with the pod's UID and no annotations, and assumes nothing (``_bind_plainly``).

kube-scheduler gives up a bind after its timeout and sends it again, perhaps to another replica,
while the first may still be under way. So each replica runs the requests for one pod one after the
other, and the API server decides between replicas.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
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
    """The bind requests for one pod, of which one runs at a time. ``users``: their number."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class PodBinder:
    """Handles one bind request: read, assume, write.

    It refuses a pod whose past is not known (``knows_past``, see ``ordinal_history_reader``).

    A Binding is *in doubt* while nobody knows whether it arrived. What was assumed for it stays
    until the watch shows the outcome, until the next bind of the pod, or for ``RESERVATION_TTL_S``,
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
        """May change at any time: each bind reads it."""
        self._api = api
        self._caches = caches
        self._binder = binder
        self._in_flight: dict[str, _Flight] = {}
        self._in_doubt: dict[str, tuple[AssumedPod, asyncio.TimerHandle]] = {}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Bind the pod to the node. Succeeds if the pod is there already (I5). Raises BindRefused,
        ApiError.

        It does not trust the request: it looks the pod up, and reads it again if the cache may be
        behind.
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
        # A Binding in doubt may have arrived, so the cache may be behind. What it assumed stays
        # until the pod has been read: nobody else may have that meanwhile.
        pod = None if uid in self._in_doubt else self._known(f"{namespace}/{name}", uid)
        if pod is None:
            obj = await self._api.get(PODS, namespace, name)
            self._end_doubt(uid)
            if not is_adapter(obj):
                await self._bind_plainly(pod_from(obj), uid, node)
                return
            if not self._caches.serves(namespace):
                raise BindRefused(
                    ConflictReason.POOL_NOT_SERVED,
                    f"pools.namespaces of this service does not list namespace {namespace}: add it "
                    f"there, or give the pod the schedulerName of the installation that has its "
                    f"pool",
                )
            pod = self._into_cache(obj)
        await self._bind_adapter(pod, uid, node)

    async def _bind_adapter(self, pod: AdapterPod, uid: str, node: str) -> None:
        for attempt in range(self.ATTEMPTS_MAX):
            self._refuse_wrong_pod(pod, uid, node)
            assumed = await self._assume_or_reread(pod, uid, node)
            if assumed.already_bound:
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
        """The pod in the cache; None if it must be read: unless the cache surely has it unbound."""
        # ``latest`` is what the API server sent last, ``get`` what is assumed on top of that. A pod
        # that is assumed may be bound, and its watch event is still to come. A pod that is bound
        # may have lost its node in a restore of etcd. From the cache, bind would then answer with
        # success forever (seed 108015178).
        pod, effective = self._caches.pods.latest(key), self._caches.pods.get(key)
        assumed = effective is not None and effective.assumed
        return None if pod is None or pod.uid != uid or pod.node or assumed else pod

    async def _bind_plainly(self, pod: AdapterPod, uid: str, node: str) -> None:
        """Bind a pod that is no adapter. The Binding names its UID and no version: whatever else
        has changed, the pod needs a node.
        """
        self._refuse_wrong_pod(pod, uid, node)
        if not pod.node:
            await self._api.bind(Binding(pod.namespace, pod.name, node, uid=uid))

    async def _assume_or_reread(self, pod: AdapterPod, uid: str, node: str) -> AssumedPod:
        """Assume the pod. A refusal may come from a cache that is behind: then the pod is on the
        node already (I5).
        """
        try:
            if not pod.node:
                await self._check_past(pod, node)
            return self._binder.assume(pod, node)
        except BindRefused:
            pod = await self._read(pod.namespace, pod.name)
            self._refuse_wrong_pod(pod, uid, node)
            if not pod.node:
                raise
            return self._binder.assume(pod, node)

    async def _check_past(self, pod: AdapterPod, node: str) -> None:
        state = self._caches.state
        pool = state.pools.get(pod.pool)
        if pool is None or pool.adapter_pool is None:
            return  # assume refuses it for that; listing vpods would change nothing
        known = state.nodes.get(node)
        with pool.expecting(pod.name, known) if known is not None else nullcontext():
            past_known = await self._knows_past(pod)
        if not past_known:
            raise BindRefused(
                ConflictReason.CATCHING_UP, f"what {pod.name} held before is not known here"
            )

    def _refuse_wrong_pod(self, pod: AdapterPod, uid: str, node: str) -> None:
        """Raise BindRefused if the pod may not go to the node, whatever the node is like."""
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

    def _doubt(self, assumed: AssumedPod) -> None:
        uid = assumed.pod.uid
        expiry = asyncio.get_running_loop().call_later(RESERVATION_TTL_S, self._end_doubt, uid)
        self._in_doubt[uid] = (assumed, expiry)

    def _end_doubt(self, uid: str) -> None:
        """Undo what an earlier Binding in doubt assumed, if there was one."""
        assumed, expiry = self._in_doubt.pop(uid, (None, None))
        if assumed is not None and expiry is not None:
            expiry.cancel()
            self._binder.revert(assumed)

    async def _read(self, namespace: str, name: str) -> AdapterPod:
        return self._into_cache(await self._api.get(PODS, namespace, name))

    def _into_cache(self, obj: Obj) -> AdapterPod:
        """Put the pod that was read into the cache, and return it."""
        pod = pod_from(obj)
        self._caches.pods.written(pod)
        return pod
