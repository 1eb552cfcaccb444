"""``PoolStatusWriter``: the leader's loop that writes AdapterPool statuses.

A write first reads the stored status, and has that version as its precondition. Transition times
continue from what is stored, so a failover neither writes nor changes a status. Conditions that
others have added stay. Once a status is known to be stored, nothing is read or written until this
service's numbers change, or the object does (somebody may have overwritten it).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from extender.engine.scaling.rollout import ROLLING_OUT
from extender.engine.scaling.size import ScalePlan, anyone, plan_scale
from extender.engine.state.availability import AVAILABLE, Served, pool_availability, told_change
from extender.engine.state.collector import why_unschedulable
from extender.engine.state.pool_state import PoolState
from extender.kube.api import (
    ADAPTERPOOLS,
    Api,
    ApiError,
    NotFound,
    Obj,
    OutcomeUnknown,
    PatchType,
)
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import PoolApi
from extender.model.amounts import SLOTS
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import counted, counted_are, taken_of
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPool, VPod
from extender.model.reading import Json, mapping, mappings, text
from extender.model.timestamps import timestamp
from extender.service.pools.load_polling import LOAD_UNAVAILABLE
from extender.service.pools.load_reports import LoadSummary
from extender.service.watching.caches import Caches
from extender.service.watching.sources import SOURCE_CONFLICT, SOURCE_UNAVAILABLE, PoolCondition

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
"""At most one write per pool in this time. Most passes find nothing to write."""
SHARE_OF_TIME: Final = 0.05
"""The longest share of the time spent on examining a pool: a large pool that changes all the time
is examined less often.
"""


def pool_numbers(state: PoolState) -> dict[str, int]:
    """The counts of AdapterPool.status: pods, slots, vreplicas and vpods.

    Used, free and closed slots add up to all slots (``SlotCounts``).
    """
    published = sum(sum(vpod.placements.values()) for vpod in state.vpods.values())
    unserved = sum(state.unserved.values())
    slots = state.slot_counts()
    return {
        "pods": sum(1 for pod in state.members() if pod.pod is not None),
        "schedulablePods": state.schedulable_count(),
        "slots": slots.total,
        "usedSlots": slots.used,
        "freeSlots": slots.free,
        "closedSlots": slots.closed,
        "pendingVReplicas": sum(
            state.vpods[key].vreplicas - state.decided_vreplicas(key)
            for key in state.vpods_with_pending
        ),
        "readyVReplicas": published - unserved,
        "unservedVReplicas": unserved,
        "unavailableVPods": len(state.unserved),
        "vpods": len(state.vpods),
    }


def pool_conditions(
    state: PoolState, allows: Callable[[VPod], bool] = anyone, *, foreign: int | None = None
) -> list[PoolCondition]:
    """(type, whether it holds, reason, message) of each condition of the pool.

    ``foreign``: replicas that somebody else has asked for, while that number stands.
    """
    plan = plan_scale(state, allows)
    return [
        ("Ready", *readiness(state)),
        available(state),
        _overcommitted(state),
        _scaling_limited(state, plan, foreign) if plan is not None else _WITHIN_LIMITS,
    ]


def available(state: PoolState) -> PoolCondition:
    """Whether all vreplicas of the pool are served. If not, the message has counts and pods."""
    condition = pool_availability(state).condition()
    return (condition.type, condition.status == "True", condition.reason, condition.message[:1024])


def _overcommitted(state: PoolState) -> PoolCondition:
    over = {pod.name: pod.ledger_excess for pod in state.overcommitted()}
    if not over:
        return ("Overcommitted", False, "WithinSlots", "no ledger takes more than its pod has")
    pods = ", ".join(f"{name} ({taken_of(excess)})" for name, excess in sorted(over.items()))
    of_slots = any(SLOTS in excess for excess in over.values())
    reason = "LedgerOverSlots" if of_slots else "LedgerOverCapacities"
    note = f"ledgers take more than their pods have, and are trimmed: {pods}"
    return ("Overcommitted", True, reason, note[:1024])


_WITHIN_LIMITS: Final[PoolCondition] = (
    "ScalingLimited",
    False,
    "WithinLimits",
    "the pool may have the pods that it needs",
)


def _scaling_limited(state: PoolState, plan: ScalePlan, foreign: int | None) -> PoolCondition:
    if plan.falls_short:
        reason = "ExternalReplicas" if plan.external else "MaxPods"
        return ("ScalingLimited", True, reason, plan.limit_text)
    replicas = state.stateful_set.replicas if state.stateful_set is not None else 0
    pool = state.adapter_pool
    if pool is not None and not pool.writes_replicas and plan.wanted > replicas:
        note = (
            f"{counted_are(plan.wanted, 'pod')} needed (status.desiredPods), and others have not "
            f"given it more than {replicas} yet (spec.scaling.mode is Advise)"
        )
        return ("ScalingLimited", True, "AdviceNotFollowed", note)
    if foreign is not None and foreign != plan.wanted:
        note = (
            f"somebody else asks for {counted(foreign, 'replica')}, "
            f"{counted_are(plan.wanted, 'pod')} needed"
        )
        return ("ScalingLimited", True, "ForeignReplicas", note)
    return _WITHIN_LIMITS


def readiness(state: PoolState) -> tuple[bool, str, str]:
    """Whether vpods are placed in the pool as it specifies, with reason and message."""
    if state.taken_by:
        return (
            False,
            "StatefulSetTaken",
            f"AdapterPool {state.taken_by} has the StatefulSet that spec.statefulSet names; this "
            f"one never scales it",
        )
    if state.stateful_set is None:
        return (
            False,
            "StatefulSetNotFound",
            "the StatefulSet that spec.statefulSet names does not exist in this namespace",
        )
    if state.adapter_pool is not None and state.profile.name != state.adapter_pool.profile:
        return (
            False,
            "ProfileUnknown",
            f"there is no such profile: vpods are placed by {state.profile.name}",
        )
    pods, taking = len(state.stateful_set.ordinals), state.schedulable_count()
    if pods and not taking:
        return (
            False,
            "NoPodTakesVReplicas",
            f"none of {counted(pods, 'pod')} takes vreplicas: {_why_none(state)}",
        )
    return (
        True,
        "StatefulSetFound",
        f"{taking} of {counted(pods, 'pod')} {'takes' if pods == 1 else 'take'} vreplicas, "
        f"{counted_are(state.free_slots(), 'slot')} free",
    )


def _why_none(state: PoolState) -> str:
    """The reasons, each with its number of pods, most frequent first."""
    reasons = Counter(why_unschedulable(state, pod) or "closed" for pod in state.members())
    missing = (
        len(state.stateful_set.ordinals) - reasons.total() if state.stateful_set is not None else 0
    )
    if missing > 0:
        reasons["does not exist"] += missing
    return ", ".join(
        f"{count} {why}"
        for why, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The numbers and conditions of a pool at ``revision`` with ``foreign`` replicas."""

    state: PoolState
    revision: tuple[int, int]
    foreign: int | None
    numbers: dict[str, int]
    conditions: list[PoolCondition]
    look_again_at: float
    """Event loop's time, seconds. Before it the pool is not examined again, whatever changes."""

    def holds(
        self, state: PoolState, revision: tuple[int, int], foreign: int | None, now: float
    ) -> bool:
        """Whether nothing has changed since, or it is too early to examine the pool again."""
        same = (self.revision, self.foreign) == (revision, foreign)
        return self.state is state and (same or now < self.look_again_at)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the API server is known to store: the status ``plain``, in these versions of the
    object.
    """

    uid: str
    versions: frozenset[str]
    plain: Obj


def no_load(_pool: AdapterPool) -> LoadSummary | None:
    """Nothing is known of the load of any pool."""
    return None


class PoolStatusWriter:
    """Writes statuses that have changed, until cancelled."""

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        api: Api,
        caches: Caches,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        now: Callable[[], float],
        more_conditions: Callable[[AdapterPool], Sequence[PoolCondition]],
        foreign: Callable[[], Mapping[str, int]],
        desired: Callable[[], Mapping[str, int]],
        refused: Callable[[], Mapping[str, str]],
        load: Callable[[AdapterPool], LoadSummary | None] = no_load,
    ) -> None:
        """``more_conditions``: of a pool, besides ``pool_conditions``. ``foreign``: pool key ->
        replicas that somebody else has asked for. ``desired``: pool key -> the pods that it should
        have. ``refused``: pool key -> why it cannot be scaled. ``load``: what is known of a
        pool's load.
        """
        self._load = load
        self._recorder = recorder
        self._foreign = foreign
        self._desired = desired
        self._refused = refused
        self._api = api
        self._fenced = fenced
        self._caches = caches
        self._now = now
        self._more_conditions = more_conditions
        self._stored: dict[str, _Stored] = {}
        """By pool key."""
        self._seen: dict[str, _Seen] = {}
        """By pool key."""
        self._in_doubt: dict[str, Json] = {}
        """By pool key: the status that was stored before a write whose answer is lost."""

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Examine all pools of the bucket each period."""
        # Another leader in between may have written statuses unknown here.
        self._forget_but(bucket, frozenset())
        try:
            while True:
                pools = [pool for pool in self._caches.pools.list() if bucket.has(pool.key)]
                for pool in pools:
                    await self._write(pool)
                self._forget_but(bucket, {pool.key for pool in pools})
                await asyncio.sleep(PERIOD_S)
        finally:
            self._forget_but(bucket, frozenset())

    def _forget_but(self, bucket: Bucket, pools: Collection[str]) -> None:
        for known in (self._stored, self._seen, self._in_doubt):
            for gone in [key for key in known if bucket.has(key) and key not in pools]:
                del known[gone]

    async def _write(self, pool: AdapterPool) -> None:
        state = self._caches.state.pools.get(pool.key)
        if state is None:
            return
        seen = self._look(state, self._foreign().get(pool.key))
        conditions = [*seen.conditions, *self._more_conditions(pool)]
        if (why := self._refused().get(pool.key)) and _WITHIN_LIMITS in conditions:
            note = f"the StatefulSet cannot be scaled: {why}"[:1024]
            conditions[conditions.index(_WITHIN_LIMITS)] = (
                "ScalingLimited",
                True,
                "ScaleFailed",
                note,
            )
        plain: Obj = {
            "observedGeneration": pool.generation,
            **seen.numbers,
            "conditions": [list(condition) for condition in conditions],
        }
        desired = self._desired().get(pool.key)
        if desired is not None and state.stateful_set is not None:
            plain["desiredPods"] = desired
        if (load := self._load(pool)) is not None:
            plain["load"] = load.to_status()
        known = self._stored.get(pool.key)
        if (
            known is not None
            and (known.uid, known.plain) == (pool.uid, plain)
            and pool.resource_version in known.versions
        ):
            return
        try:
            version = await self._publish(pool, plain)
        except NotFound:
            self._stored.pop(pool.key, None)
        except ApiError as error:
            log.info(
                "status of pool %s was not written: %s", pool.key, error, extra={"pool": pool.key}
            )
        else:
            self._stored[pool.key] = _Stored(
                pool.uid, frozenset({version, pool.resource_version}), plain
            )

    def _look(self, state: PoolState, foreign: int | None) -> _Seen:
        """The pool's present numbers. They are computed once per change, not once per period,
        because thousands of vpods take time.
        """
        revision = self._caches.state.revision_of(state)
        seen, clock = self._seen.get(state.key), asyncio.get_running_loop().time
        began = clock()
        if seen is not None and seen.holds(state, revision, foreign, began):
            return seen
        allows = partial(self._caches.state.selects, state.key)
        conditions = pool_conditions(state, allows, foreign=foreign)
        numbers = pool_numbers(state)
        look_again_at = clock() + (clock() - began) / SHARE_OF_TIME
        seen = self._seen[state.key] = _Seen(
            state, revision, foreign, numbers, conditions, look_again_at
        )
        return seen

    async def _publish(self, pool: AdapterPool, plain: Obj) -> str:
        """Make the stored status say ``plain``. Return the version of the object that does.

        A merge patch replaces the list of conditions, so the patch includes the conditions of
        others, as read in the version that is its precondition.
        """
        stored = await self._api.get(ADAPTERPOOLS, pool.namespace, pool.name)
        metadata, known = (
            mapping(stored, "metadata"),
            list(mappings(stored, "status", "conditions")),
        )
        if text(metadata, "uid") != pool.uid:
            raise NotFound(404, "NotFound", "the pool has been deleted and created again")
        ours = [self._condition(pool, known, *condition) for condition in plain["conditions"]]
        kinds = {condition["type"] for condition in ours}
        if not pool.load_source:
            kinds.add(LOAD_UNAVAILABLE)  # it has no source any more
        if not pool.rolls_out:
            kinds.add(ROLLING_OUT)
        if not (pool.sources or pool.source_problems):
            kinds |= {SOURCE_CONFLICT, SOURCE_UNAVAILABLE}
        conditions = [*ours, *(dict(item) for item in known if item.get("type") not in kinds)]
        status: Obj = {**plain, "conditions": conditions}
        version, before = text(metadata, "resourceVersion"), mapping(stored, "status")
        for name in self._unknown(pool):
            if name in before and name not in status:
                status[name] = None  # the merge patch removes it
        in_doubt = self._in_doubt.pop(pool.key, None)
        if _says(before, status):
            if in_doubt is not None:  # it has arrived, and nobody has reported it
                self._report(pool, in_doubt, status)
            return version
        try:
            written = await self._fenced(pool.key).patch(
                ADAPTERPOOLS,
                pool.namespace,
                pool.name,
                {"metadata": {"uid": pool.uid, "resourceVersion": version}, "status": status},
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except OutcomeUnknown:
            self._in_doubt[pool.key] = before
            raise
        self._report(pool, before, status)
        return text(mapping(written, "metadata"), "resourceVersion")

    def _unknown(self, pool: AdapterPool) -> Iterator[str]:
        """The fields of which nothing is known if they are not written. A new leader has not yet
        looked how many pods are needed; without a StatefulSet nobody will.
        """
        yield "load"
        state = self._caches.state.pools.get(pool.key)
        if state is None or state.stateful_set is None:
            yield "desiredPods"

    def _report(self, pool: AdapterPool, before: Json, after: Json) -> None:
        """Report whenever vreplicas are lost, and when all are served again. The stored status
        shows what was reported.
        """
        new = _available_of(after)
        change = told_change(_served(before), _served(after))
        if change is None:
            return
        self._recorder.event(
            ObjectReference(API_VERSION, "AdapterPool", pool.namespace, pool.name, pool.uid),
            reason=change,
            note=text(new, "message"),
        )

    def _condition(self, pool: AdapterPool, known: Sequence[Json], *condition: Any) -> Obj:
        kind, holds, reason, message = condition
        status = "True" if holds else "False"
        since = next(
            (
                text(item, "lastTransitionTime")
                for item in known
                if (item.get("type"), item.get("status")) == (kind, status)
            ),
            "",
        )
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": pool.generation,
            "lastTransitionTime": since or timestamp(self._now()),
        }


def _says(stored: Json, status: Obj) -> bool:
    """Whether the stored status already is ``status``, in any order of conditions."""
    return all(
        _by_type(stored) == _by_type(status) if name == "conditions" else stored.get(name) == value
        for name, value in status.items()
    )


def _available_of(status: Json) -> Json:
    return next(
        (item for item in mappings(status, "conditions") if item.get("type") == AVAILABLE), {}
    )


def _served(status: Json) -> Served:
    """What a pool's status says; a missing count is 0."""
    ready, unserved = (
        count if type(count := status.get(name)) is int else 0
        for name in ("readyVReplicas", "unservedVReplicas")
    )
    return Served(text(_available_of(status), "reason"), ready, unserved)


def _by_type(status: Json) -> dict[str, Json]:
    return {text(condition, "type"): condition for condition in mappings(status, "conditions")}
