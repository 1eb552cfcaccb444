"""The embedded kube-scheduler: the loop of version 1.37 against the ``Api`` Protocol.

::

    queue.pop -> snapshot -> filter, extenders, score (algorithm.py)
       |            fits nowhere: preemption, condition PodScheduled=False, FailedScheduling event,
       |                          back to the queue
       +- fits: assume in the cache, then next pod; meanwhile bind in a task of its own (extender's
                verb, or a Binding)
                    bound:   Scheduled event; the pod's own watch event ends the assumption (else
                             it expires after 30 s)
                    refused: forget, tell the queue that there is room, back to the queue with
                             backoff

It makes one decision at a time, but many binds run concurrently. The only clocks are the event
loop's (``loop.time``) and the injected ``now`` (epoch seconds), so a virtual-time loop can drive
all of it.

A pod that an extender refused is filtered a second time at once. No special rule does this: the
first refusal patches the pod's condition, and that update activates the pod again. The second
refusal has the same text, so it patches nothing.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from extender.config.kube_scheduler import SchedulerConfig
from extender.kube.api import (
    PODS,
    Api,
    ApiError,
    Binding,
    NotFound,
    Obj,
    PatchType,
    Preconditions,
    Resource,
)
from extender.lab.scheduler.algorithm import (
    FitError,
    NoNodesAvailable,
    SchedulingAlgorithm,
    SchedulingError,
    extenders_binding,
)
from extender.lab.scheduler.cache import CacheError, SchedulerCache, Snapshot
from extender.lab.scheduler.events import Event, EventRecorder
from extender.lab.scheduler.extender_client import Extender, ExtenderError, build_extenders
from extender.lab.scheduler.extender_transport import Transport
from extender.lab.scheduler.framework import CycleState, Profile
from extender.lab.scheduler.informers import ClusterWatcher, assigned_pod_deleted
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.policy_profile import profiles_of
from extender.lab.scheduler.preemption import (
    DISRUPTION_TARGET,
    PREEMPTION_BY_SCHEDULER,
    Preemption,
    Preemptor,
)
from extender.lab.scheduler.queue import QueuedPod, SchedulingQueue
from extender.lab.scheduler.queueing_hints import DEFAULT_PREEMPTION, SCHEDULING_GATES
from extender.lab.scheduler.select_host import HostSelector, RoundRobin
from extender.lab.scheduler.types import Code, NodeView, PodInfo, Status
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from extender.model.reading import condition_in
from extender.model.timestamps import timestamp

log = logging.getLogger(__name__)

BINDS_IN_FLIGHT_MAX: Final = 100
EXPIRY_CHECK_S: Final = 1.0
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed attempt: reason and message of the condition, the plugins that refused, and the new
    nomination (None: unchanged).
    """

    reason: str
    message: str
    refused_by: frozenset[str] = frozenset()
    nominate: str | None = ""


class Scheduler:
    """One kube-scheduler process. Start ``run`` as a task, and cancel the task to stop it."""

    def __init__(
        self,
        api: Api,
        config: SchedulerConfig,
        *,
        now: Callable[[], float],
        rng: random.Random,
        transport: Transport,
        select_host: HostSelector | None = None,
    ) -> None:
        """``now`` returns epoch seconds. ``transport`` carries the extender calls
        (AiohttpTransport, or a simulation's). ``select_host``: None for ``RoundRobin``.
        """
        self._api = api
        self._now = now
        self._rng = rng
        self.listers = Listers()
        self.cache = SchedulerCache()
        self.queue = SchedulingQueue(
            clock=_monotonic,
            initial_backoff_s=config.pod_initial_backoff_s,
            max_backoff_s=config.pod_max_backoff_s,
            gate=self._gate,
        )
        self.extenders: list[Extender] = list(build_extenders(config.extenders, transport))
        self.algorithm = SchedulingAlgorithm(
            self.extenders,
            self.queue,
            select_host if select_host is not None else RoundRobin(),
            percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
        )
        self.preemptor = Preemptor(self.extenders, self.queue, self.listers, rng)
        self.watcher = ClusterWatcher(
            self.cache, self.queue, self.listers, lambda pod: pod.scheduler_name in self.profiles
        )
        binder = VolumeBinder(
            self.listers, api, node=self._node, pod_exists=lambda pod: pod.key in self.watcher.pods
        )
        self.profiles = profiles_of(config, self.listers, binder)
        self.events = EventRecorder(
            api, now=now, clock=_monotonic, instance=f"{rng.randrange(16**8):08x}"
        )
        self._bind_slots = asyncio.Semaphore(BINDS_IN_FLIGHT_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        # Pods whose victims are being deleted -> the last victim, once only that one is left.
        self._preempting: dict[str, PodInfo | None] = {}

    def _node(self, name: str) -> NodeView | None:
        """Return a node as the informer has it."""
        return self.watcher.nodes.get(name)

    async def run(self, *, unwatched: Collection[Resource] = ()) -> None:
        """Schedule until cancelled. ``unwatched``: kinds of which the cluster has no objects."""
        informers = self.watcher.informers(self._api, self._rng, unwatched=unwatched)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in informers:
                    group.create_task(informer.run())
                for informer in informers:
                    await informer.synced.wait()
                group.create_task(self.queue.run())
                group.create_task(self.events.run())
                group.create_task(self._expire_assumptions())
                group.create_task(self._schedule_forever())
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _schedule_forever(self) -> None:
        while True:
            await self.schedule_one()

    async def _expire_assumptions(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_CHECK_S)
            for pod in self.cache.expire(_monotonic()):
                log.warning("pod %s was bound to %s but never seen there", pod.key, pod.node_name)
                self.queue.move_all(assigned_pod_deleted(pod))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # This is a bug. Failed binds are handled where they happen.
            log.error("a scheduler task ended unexpectedly", exc_info=error)

    # One pod

    async def schedule_one(self) -> None:
        """Take the next pod, decide, and start its bind."""
        queued = await self.queue.pop()
        pod = queued.pod
        profile = self.profiles.get(pod.scheduler_name)
        if profile is None or self.cache.is_assumed(pod.uid):
            self.queue.done(pod.uid)
            return
        if pod.deleting:
            note = f"skip schedule deleting pod: {pod.key}"
            self.events.record(Event("Warning", "FailedScheduling", "Scheduling", note, pod))
            self.queue.done(pod.uid)
            return
        state = CycleState()
        decided = await self._decide(profile, state, pod)
        if isinstance(decided, _Failure):
            await self._failed(queued, decided)
            return
        try:
            self.cache.assume(pod, decided)
        except CacheError as error:
            await self._failed(queued, _Failure(SCHEDULER_ERROR, str(error)))
            return
        if (refused := profile.run_reserve(state, pod, decided)) is not None:
            profile.run_unreserve(state, pod, decided)
            self._forget(pod)
            await self._failed(queued, _Failure(SCHEDULER_ERROR, refused.message))
            return
        self.queue.forget_nomination(pod.uid)
        await self._bind_slots.acquire()
        self._start(self._bind(queued, profile, state, decided))

    async def _decide(self, profile: Profile, state: CycleState, pod: PodInfo) -> str | _Failure:
        snapshot = self.cache.snapshot()
        try:
            return (await self.algorithm.schedule_pod(profile, state, pod, snapshot)).node
        except NoNodesAvailable as error:
            return _Failure(UNSCHEDULABLE, str(error))
        except SchedulingError as error:
            return _Failure(SCHEDULER_ERROR, str(error))
        except FitError as error:
            nominate = await self._post_filter(profile, state, pod, snapshot, error)
            refused_by = frozenset(error.diagnosis.refused_by)
            return _Failure(UNSCHEDULABLE, str(error), refused_by, nominate)

    # Preemption

    async def _post_filter(
        self, profile: Profile, state: CycleState, pod: PodInfo, snapshot: Snapshot, error: FitError
    ) -> str | None:
        """Try to preempt; put the message into ``error``. Return a nomination (None: as before)."""
        newest = self.watcher.pods.get(pod.key)
        if newest is None:
            status = Status(Code.ERROR, (f'preemption: pod "{pod.name}" not found',))
            found = Preemption(status, message=status.message)
        else:
            found = await self.preemptor.run_post_filters(
                profile, state, newest, error.diagnosis, snapshot
            )
        error.diagnosis.post_filter_message = found.message
        if found.status is None:
            await self._prepare(found, pod)
        elif found.status.code is Code.ERROR:
            return None
        return found.node

    async def _prepare(self, preemption: Preemption, pod: PodInfo) -> None:
        """Delete the victims in the background. Until that is done, the pod is not tried again."""
        victims = [victim for victim in preemption.victims.pods if not victim.deleting]
        if victims:
            self._preempting[pod.uid] = None
            self._start(self._preempt(pod, preemption.node or "", victims))

    async def _preempt(self, pod: PodInfo, node: str, victims: list[PodInfo]) -> None:
        try:
            for other in self.queue.nominated_pods(node):
                if other.priority < pod.priority and other.nominated_node:
                    await self._patch_status(other, {"nominatedNodeName": None})
            for victim in victims[:-1]:
                await self._preempt_pod(pod, node, victim)
            self._preempting[pod.uid] = victims[-1]
            await self._preempt_pod(pod, node, victims[-1])
        except ApiError as error:
            log.warning("preemption for pod %s on %s: %s", pod.key, node, error)
            self._preempting.pop(pod.uid, None)
            self.queue.activate(pod)
        finally:
            self._preempting.pop(pod.uid, None)

    async def _preempt_pod(self, pod: PodInfo, node: str, victim: PodInfo) -> None:
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": f"{pod.scheduler_name}: preempting to accommodate a higher priority pod",
        }
        conditions = self._with_condition(victim, condition)
        try:
            if conditions is not None:
                await self._patch_status(victim, {"conditions": conditions})
            await self._api.delete(
                PODS, victim.namespace, victim.name, preconditions=Preconditions(uid=victim.uid)
            )
        except NotFound:
            return
        note = f"Preempted by pod {pod.uid} on node {node}"
        self.events.record(Event("Normal", "Preempted", "Preempting", note, victim, related=pod))

    def _gate(self, pod: PodInfo) -> str:
        """PreEnqueue: return the plugin that holds the pod back, "" if none."""
        if pod.scheduling_gates:
            return SCHEDULING_GATES
        if pod.uid not in self._preempting:
            return ""
        last = self._preempting[pod.uid]
        if last is None:
            return DEFAULT_PREEMPTION
        # The deletion may begin, and be seen, before the call that requests it returns.
        victim = self.watcher.pods.get(last.key)
        return DEFAULT_PREEMPTION if victim is not None and not victim.deleting else ""

    # Binding

    async def _bind(
        self, queued: QueuedPod, profile: Profile, state: CycleState, node: str
    ) -> None:
        pod = queued.pod
        self.queue.done(pod.uid)
        try:
            refused = await profile.run_pre_bind(state, pod, node)
            error = refused.message if refused is not None else await self.bind_pod(pod, node)
            self.cache.finish_binding(pod.uid, _monotonic())
            if not error:
                note = f"Successfully assigned {pod.key} to {node}"
                self.events.record(Event("Normal", "Scheduled", "Binding", note, pod))
                return
            profile.run_unreserve(state, pod, node)
            self._forget(pod)
            await self._failed(queued, _Failure(SCHEDULER_ERROR, error))
        finally:
            self._bind_slots.release()

    def _forget(self, pod: PodInfo) -> None:
        try:
            forgotten = self.cache.forget(pod.uid)
        except CacheError as late:
            # It is bound: the answer was lost, or came after the deadline.
            log.info("pod %s: %s", pod.key, late)
        else:
            self.queue.move_all(assigned_pod_deleted(forgotten or pod))

    async def bind_pod(self, pod: PodInfo, node: str) -> str:
        """Bind through an extender or the API. Return the error's text, "" for none."""
        try:
            if await extenders_binding(self.extenders, pod, node):
                return ""
            await self._api.bind(Binding(pod.namespace, pod.name, node, uid=pod.uid))
        except ExtenderError as error:
            return str(error)
        except ApiError as error:
            return f'running Bind plugin "DefaultBinder": {error.message}'
        return ""

    # Failure

    async def _failed(self, queued: QueuedPod, failure: _Failure) -> None:
        """handleSchedulingFailure: requeue the pod, record the event, set the condition."""
        pod = queued.pod
        queued.refused_by = set(failure.refused_by)
        newest = self.watcher.pods.get(pod.key)
        if newest is None or newest.uid != pod.uid or newest.node_name:
            # It is gone, or bound although the answer was an error.
            self.queue.done(pod.uid)
        else:
            self.queue.add_unschedulable(queued, newest)
            self.queue.nominate(newest, failure.nominate)
        self.events.record(Event("Warning", "FailedScheduling", "Scheduling", failure.message, pod))
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": failure.reason,
            "message": failure.message,
        }
        status: Obj = {}
        conditions = self._with_condition(pod, condition)
        if conditions is not None:
            status["conditions"] = conditions
        if failure.nominate is not None and failure.nominate != pod.nominated_node:
            status["nominatedNodeName"] = failure.nominate or None
        if status:
            try:
                await self._patch_status(pod, status)
            except ApiError as error:
                log.info("status of pod %s: %s", pod.key, error)

    def _with_condition(self, pod: PodInfo, condition: Obj) -> list[Obj] | None:
        """Return the pod's conditions with this one; None if it is set already."""
        known: list[Obj] = list((pod.obj.get("status") or {}).get("conditions") or ())
        before = condition_in(pod.obj, condition["type"])
        generation = (pod.obj.get("metadata") or {}).get("generation")
        if generation is not None:
            condition = {**condition, "observedGeneration": generation}
        if before and all(before.get(key) == value for key, value in condition.items()):
            return None
        since = (
            before.get("lastTransitionTime")
            if before.get("status") == condition["status"]
            else None
        )
        condition = {
            **condition,
            "lastProbeTime": None,
            "lastTransitionTime": since or timestamp(self._now()),
        }
        return [*(c for c in known if c.get("type") != condition["type"]), condition]

    async def _patch_status(self, pod: PodInfo, status: Obj) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._api.patch(
            PODS, pod.namespace, pod.name, patch, patch_type=PatchType.MERGE, subresource="status"
        )
