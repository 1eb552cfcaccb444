"""``VReplicaBinder``: says which nodes may have an adapter pod, and binds the pod with its ledger
to the node that kube-scheduler picks.

It follows the pattern of kube-scheduler's volume binder, and its names: ``VReplicaBinder`` is the
contract, ``SchedulerVReplicaBinder`` implements it on caches, and tests use
``FakeVReplicaBinder``.

::

    filter   -> find    what will the pod carry, and which nodes may it go to?
                        (changes only the cache of results)
    bind     -> assume  validate again on the present state, reserve, put the pod on the node in
                        the assume cache
                bind    one Binding: node and ledger in one API write; the watch confirms it
                revert  undo assume exactly, if bind did not happen

Any replica may serve any verb at any time. The API server makes this safe: a Binding carries the
pod's UID and version as preconditions, so it fails if anybody has changed the pod
since.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from extender.kube.api import (
    PODS,
    Api,
    ApiError,
    Binding,
    Conflict,
    Forbidden,
    NotFound,
    OutcomeUnknown,
)
from extender.model.decode import pod_from
from extender.model.errors import AssumeError, LedgerTooLarge, VReplicaError
from extender.model.ledger import encode_ledger
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from extender.model.objects import AdapterPod
from extender.model.reasons import ConflictReason, ConflictReasons
from extender.node.bind_ledger import BindLedger, adds_at_bind
from extender.node.candidates import Candidates
from extender.node.exposure import prioritize_known_nodes
from extender.node.filter_results import FilterResultCache
from extender.node.narrowing import best_of, room_for
from extender.node.verbs import (
    NodeLookup,
    NodeVerdicts,
    bind_ledger_in,
    filter_known_nodes,
    filter_nodes,
    slots_of,
)
from extender.service.placing.committer import RESERVATION_TTL_S
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)


class BindRefused(VReplicaError):
    """The pod may not be bound to that node at present. kube-scheduler receives ``reason`` and
    tries again later.
    """

    def __init__(self, reason: ConflictReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """What ``assume`` did and ``revert`` undoes. ``pod`` is the pod before; the other fields are
    what it shall have.

    ``already_bound``: the pod is on the node already, so nothing was assumed and nothing is to be
    written. Then only ``pod`` and ``node`` count.
    """

    pod: AdapterPod
    node: str
    bind_ledger: BindLedger
    slots: int
    already_bound: bool = False

    @property
    def owner(self) -> tuple[str, str]:
        """The owner of its reservations in the state."""
        return bind_owner(self.pod.uid)


def bind_owner(pod_uid: str) -> tuple[str, str]:
    """The owner of the reservations that a bind of a pod makes."""
    return ("bind", pod_uid)


class VReplicaBinder(Protocol):
    """Filter calls ``find``, and bind calls ``assume`` and ``bind``. The binds of several pods
    overlap. Those of one pod do not (``PodBinder``).

    ``find`` stores only its result. ``assume`` changes caches and state, and never awaits. ``bind``
    writes to the API. If it raises, the caller reverts: at once, or when the doubt ends if it
    raised OutcomeUnknown or was cancelled.
    """

    def find(
        self, pod: AdapterPod, candidates: Candidates, lookup: NodeLookup | None = None
    ) -> NodeVerdicts:
        """Say which candidate nodes may have the pod. Replaces the earlier result for the pod.
        Nodes that do not fit are part of the result, not an error. An implementation may pass only
        the best of the nodes that fit (``narrow_to``). It gives no reason for the others.

        ``lookup``: the nodes as they were sent; None: the cached nodes.
        """
        ...

    def bind_ledger(self, pod_uid: str) -> BindLedger | None:
        """What the pod would carry by the last ``find``. None if no node passed or the result has
        expired.
        """
        ...

    def assume(self, pod: AdapterPod, node: str) -> AssumedPod:
        """Validate again and assume; nothing for a pod that is on the node already. Raises
        BindRefused. After a refusal, pods and state are as before. Only the result of ``find`` may
        be forgotten.
        """
        ...

    async def bind(self, assumed: AssumedPod) -> None:
        """Write the Binding, and wait a limited time for the watch to show it (BindPodVolumes waits
        for its claims, too). Raises ApiError, and BindRefused if the API server forbids the write
        (403), or if the watch shows that the pod is gone.

        If the outcome of the write is unknown, reads the pod back. Raises OutcomeUnknown if that
        fails too, and Conflict if the pod is not bound. The Binding may still arrive then. Nothing
        is placed on a pod that is not bound, so the pod has room for what it carries.
        """
        ...

    def revert(self, assumed: AssumedPod) -> None:
        """Undo ``assume``. If the pod has changed or gone meanwhile, there is less to undo."""
        ...


class SchedulerVReplicaBinder:
    """Implements ``VReplicaBinder`` on caches. ``leads``: whether this replica leads the
    pool with that key. Only then may a bind add pending vreplicas.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        *,
        clock: Callable[[], float],
        leads: Callable[[str], bool],
        narrow_to: int = 0,
        seen_within_s: float = 0.0,
    ) -> None:
        """``narrow_to``: how many nodes ``find`` passes at most at a pod's first call, with cached
        nodes; 0: all. Each further call passes four times as many.
        ``seen_within_s``: how long ``bind`` waits for the watch, which may be cut.
        """
        self._api = api
        self._caches = caches
        self._clock = clock
        self._leads = leads
        self.narrow_to = narrow_to
        """May change at any time: each ``find`` reads it."""
        self._seen_within_s = seen_within_s
        self._awaited: dict[str, asyncio.Future[bool]] = {}
        """UID of a pod that is being bound -> whether the watch shows it bound, or else gone."""
        self._filter_results = FilterResultCache(clock)
        caches.pods.add_event_handler(self._pod_changed)

    def find(
        self, pod: AdapterPod, candidates: Candidates, lookup: NodeLookup | None = None
    ) -> NodeVerdicts:
        """See VReplicaBinder."""
        if lookup is None:
            verdicts = filter_known_nodes(self._caches.state, pod, candidates)
        else:
            verdicts = filter_nodes(self._caches.state, pod, candidates.names, lookup)
        try:
            bind_ledger = self._assumed_ledger(pod) or bind_ledger_in(
                self._caches.state, pod, with_added=True
            )
        except LedgerTooLarge:
            self._filter_results.delete(pod.uid)
            return NodeVerdicts.none_passes(candidates, ConflictReason.LEDGER_TOO_LARGE)
        if lookup is None and self.narrow_to:
            verdicts.passed = self._narrowed(pod, bind_ledger, verdicts.passed)
        self._filter_results.update(pod.uid, bind_ledger, pod.ledger_text, verdicts.passed.asked)
        return verdicts

    def _assumed_ledger(self, pod: AdapterPod) -> BindLedger | None:
        """The ledger that ``assume`` has given the pod; None if it has not. kube-scheduler may
        filter a pod again if a bind has not answered in time. The pod's claims count that ledger
        already, so it is not planned again.
        """
        known = self._caches.pods.get(pod.key)
        if known is None or not known.assumed or known.uid != pod.uid:
            return None
        return BindLedger(known.ledger, {}, encode_ledger(known.ledger))

    def _narrowed(self, pod: AdapterPod, bind_ledger: BindLedger, passed: Candidates) -> Candidates:
        """The best of the nodes that passed, if there are more than wanted."""
        most = room_for(self.narrow_to, self._filter_results.times(pod.uid))
        if len(passed) <= most:
            return passed
        groups = prioritize_known_nodes(self._caches.state, pod, bind_ledger.ledger, passed)
        return best_of(passed, groups, most, self._caches.state.nodes)

    @property
    def results_kept(self) -> int:
        """The number of pods whose result is kept."""
        return len(self._filter_results)

    def bind_ledger(self, pod_uid: str) -> BindLedger | None:
        """See VReplicaBinder."""
        return self._filter_results.bind_ledger(pod_uid)

    def assume(self, pod: AdapterPod, node: str) -> AssumedPod:
        """See VReplicaBinder."""
        if pod.node == node:
            carried = BindLedger(pod.ledger, {}, pod.ledger_text or "")
            return AssumedPod(pod, node, carried, pod.slots or 0, already_bound=True)
        state = self._caches.state
        problems = filter_nodes(state, pod, (node,), state.nodes.get).refusal(node)
        problems += self._cordon(pod, node)
        if problems:
            self._filter_results.clear(pod.uid, node)
            raise BindRefused(problems[0], ", ".join(f"also {reason}" for reason in problems[1:]))
        found = self._filter_results.get(pod.uid, node)
        if found is not None and found.ledger_text != pod.ledger_text:
            self._filter_results.delete(pod.uid)
            raise BindRefused(
                ConflictReason.LEDGER_CHANGED, "the pod's placements have changed since filter"
            )
        # A missing result is no reason to refuse: another replica may have filtered, or this one
        # before a restart.
        pool = state.pool(pod.pool)
        try:
            bind_ledger = bind_ledger_in(
                state, pod, with_added=self._leads(pod.pool) and adds_at_bind(pool.profile)
            )
        except LedgerTooLarge as error:
            raise BindRefused(ConflictReason.LEDGER_TOO_LARGE, str(error)) from error
        # The slots that the webhook stamped stay: they are what the pod requests, even if its pool
        # has changed.
        stamped = pod.slots if pod.slots is not None else slots_of(state, pod)
        assumed = AssumedPod(pod, node, bind_ledger, stamped)
        self._assume_pod(assumed)
        for key in bind_ledger.added:
            share = bind_ledger.ledger[key]
            pool.reserve(
                assumed.owner, key, {pod.name: share}, expires_at=self._clock() + RESERVATION_TTL_S
            )
        return assumed

    async def bind(self, assumed: AssumedPod) -> None:
        """See VReplicaBinder."""
        if assumed.already_bound:
            return
        uid = assumed.pod.uid
        seen = self._awaited[uid] = asyncio.get_running_loop().create_future()
        try:
            await self._write(assumed)
            await self._see(assumed, seen)
        finally:
            del self._awaited[uid]
        self._filter_results.delete(uid)

    async def _see(self, assumed: AssumedPod, seen: asyncio.Future[bool]) -> None:
        """Wait for the watch. The API server has said that the pod is bound, so a watch that is
        late or cut makes no difference to that.
        """
        try:
            async with asyncio.timeout(self._seen_within_s):
                exists = await seen
        except TimeoutError:
            log.debug("bind of pod %s: the watch has not shown it yet", assumed.pod.key)
            return
        if not exists:
            raise BindRefused(ConflictReason.POD_CHANGED, f"pod {assumed.pod.key} is gone")

    async def _write(self, assumed: AssumedPod) -> None:
        pod = assumed.pod
        binding = Binding(
            pod.namespace,
            pod.name,
            assumed.node,
            uid=pod.uid,
            resource_version=pod.resource_version,
            annotations={
                PLACEMENTS_ANNOTATION: assumed.bind_ledger.text,
                SLOTS_ANNOTATION: str(assumed.slots),
            },
        )
        try:
            await self._api.bind(binding)
        except Forbidden as error:
            log.warning(
                "bind of pod %s: %s: %s",
                pod.key,
                ConflictReason.WRITE_REFUSED,
                error,
                extra={"pod": pod.key, "pool": pod.pool, "reason": ConflictReason.WRITE_REFUSED},
            )
            raise BindRefused(ConflictReason.WRITE_REFUSED, str(error)) from error
        except OutcomeUnknown as error:
            try:
                bound = await self._is_bound(pod, assumed.node)
            except ApiError as unread:
                raise error from unread
            if not bound:
                raise Conflict(
                    409, "NotBound", f"the pod is not bound yet: {error.message}"
                ) from error

    def revert(self, assumed: AssumedPod) -> None:
        """See VReplicaBinder."""
        known = self._caches.pods.get(assumed.pod.key)
        if known is not None and known.assumed and known.uid == assumed.pod.uid:
            self._caches.pods.restore(assumed.pod.key)
        for key in assumed.bind_ledger.added:
            self._caches.state.release(assumed.owner, assumed.pod.pool, key)

    def _cordon(self, pod: AdapterPod, node: str) -> ConflictReasons:
        """The refusal of a cordoned node that the pod does not tolerate; empty if there is none.
        kube-scheduler's own filter has checked this. But bind may be called late, or not by a
        scheduler.
        """
        known = self._caches.state.nodes.get(node)
        if known is None or not known.cordoned:
            return ()
        tolerated = pod.fit is not None and pod.fit.tolerates_cordon()
        return () if tolerated else (ConflictReason.NODE_UNSCHEDULABLE,)

    def _assume_pod(self, assumed: AssumedPod) -> None:
        bind_ledger, pod = assumed.bind_ledger, assumed.pod
        try:
            self._caches.pods.assume(
                replace(
                    pod,
                    node=assumed.node,
                    ledger=bind_ledger.ledger,
                    slots=assumed.slots,
                    assumed=True,
                )
            )
        except AssumeError as error:
            raise BindRefused(ConflictReason.POD_CHANGED, str(error)) from error

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """End the wait for the watch, and forget what was assumed for the pod, once the watch shows
        that it is bound or gone.
        """
        if old is not None and (new is None or new.uid != old.uid):
            self._end_wait(old.uid, bound=False)
            self._forget(old)
        if new is not None and new.node and not new.assumed:
            self._end_wait(new.uid, bound=True)
            self._forget(new)

    def _forget(self, pod: AdapterPod) -> None:
        """Drop the reservations of a pod's binds, and the result of its filter."""
        self._filter_results.delete(pod.uid)
        pool = self._caches.state.pool(pod.pool)
        known = pool.pods.get(pod.name)
        owner = bind_owner(pod.uid)
        for key in [
            k
            for k, claim in (known.claims.items() if known is not None else ())
            if claim.owner == owner
        ]:
            pool.release(owner, key)

    def _end_wait(self, pod_uid: str, *, bound: bool) -> None:
        seen = self._awaited.get(pod_uid)
        if seen is not None and not seen.done():
            seen.set_result(bound)

    async def _is_bound(self, pod: AdapterPod, node: str) -> bool:
        try:
            known = pod_from(await self._api.get(PODS, pod.namespace, pod.name))
        except NotFound:
            return False
        return known.uid == pod.uid and known.node == node
