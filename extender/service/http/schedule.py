"""``POST /v1/schedule``: places vpods for callers that keep their own status, like Knative's
``Scheduler.Schedule(vpod)``.

.. code-block:: text

    {"vpod": {"namespace": "t", "name": "a", "kind": "Broker", "group": "x.dev",
              "vreplicas": 8, "slotsPerVReplica": 1,
              "placements": [{"podName": "dispatcher-0", "vreplicas": 3}]},
     "pool": {"namespace": "knative-eventing", "name": "dispatcher"}}
    -> {"placements": [{"podName": "dispatcher-0", "vreplicas": 8}], "left": 0}
    -> {"placements": [...], "left": 2, "reason": "InsufficientSlots", "retryAfterSeconds": 5}

``placements`` in the request is what the caller's status publishes at present. The reply says what
it may publish. The ledgers hold that before the reply is sent. So it survives a crash of the
service or the caller, and a repeated call gets the same answer. What a reply takes away stays in
the ledger until a later call no longer publishes it (I2). ``vreplicas`` 0 or ``"deleted": true``
gives everything back; with ``deleted``, what is published no longer counts. Nobody else releases
such a vpod: it stays in the ledgers, even across restarts, until its caller gives it back.

``resourceVersion`` is optional: the version of the object whose status publishes ``placements``. A
request is refused if this leader has had a newer version: a status that lags behind publishes too
little, and what it does not publish could be taken away (I2).

Only the pool's leader decides; other replicas answer 503 and name the leader. The verb is served by
two listeners: the extender's (``server``), and one for controllers (``schedule_server``). They
decide who may call. A caller is trusted for the vpods of all namespaces that the pool selects.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import orjson

from extender.engine.placing.plan import Decision
from extender.model.amounts import named_amounts
from extender.model.errors import InvalidObject, WireError
from extender.model.names import GROUP
from extender.model.objects import VPod, object_key
from extender.model.reading import Json, count, decode_json, placements_from
from extender.model.safe_repr import safe_repr
from extender.service.binding.verbs import SUCCESS, UNSCHEDULABLE
from extender.service.placing.placer import NotCommitted
from extender.service.watching.caches import Caches
from extender.service.watching.external_vpods import StaleVPod
from extender.service.watching.sources import ForeignSources

log: Final = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 1024 * 1024
PLACEMENTS_MAX: Final = 10_000
DEFAULT_KIND: Final = "Placeable"
DEFAULT_GROUP: Final = "duck.knative.dev"
"""Knative's duck type for everything with placements: the default for a caller without kind or
group.
"""
RETRY_AFTER_S: Final = 5
"""Knative's requeue delay when slots are missing."""
RETRY_SOON_S: Final = 1
DECISIONS_MAX: Final = 256
"""Decisions under way at once."""

_SUBJECT: Final = "request"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_VERSION: Final = re.compile(r"[0-9]{1,19}")
_VPOD_FIELDS: Final = frozenset(
    {
        *("namespace", "name", "kind", "group", "vreplicas", "slotsPerVReplica", "placements"),
        *("deleted", "resourceVersion", "perVReplica"),
    }
)
STALE: Final = 412
"""The status of a refusal: the object is older than the one that was scheduled last."""

NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})

T = TypeVar("T")


class SchedulesVPods(Protocol):
    """The placer, which decides between two batches of the pool."""

    async def schedule(self, vpod: VPod) -> Decision:
        """Decide, write the ledgers, and return what they cover. Raises NotCommitted, StaleVPod."""
        ...


class KnowsWhoLeads(Protocol):
    """The part of ``Leadership`` that is used here. ``pool``: a pool's key."""

    def leads(self, pool: str) -> bool:
        """Whether this replica leads the pool now."""
        ...

    def acts(self, pool: str) -> bool:
        """Whether it also knows what was written before it led."""
        ...

    def leader(self, pool: str) -> str:
        """Who leads the pool; "" if unknown."""
        ...


class ScheduleRefused(WireError):
    """No answer at present. ``retry_after_s``: when to ask again; None: this request will not
    succeed. ``facts``: for a caller that is a program; the answer is a JSON object then, with the
    message as ``error``.
    """

    def __init__(
        self,
        message: str,
        status: int,
        *,
        retry_after_s: int | None = None,
        facts: Mapping[str, object] = NO_FACTS,
    ) -> None:
        super().__init__(message, status)
        self.retry_after_s = retry_after_s
        self.facts = facts


class ScheduleVerb:
    """The endpoint, from body to body."""

    def __init__(
        self,
        caches: Caches,
        placer: SchedulesVPods,
        sources: ForeignSources,
        *,
        leadership: KnowsWhoLeads,
    ) -> None:
        self._caches = caches
        self._placer = placer
        self._sources = sources
        self._leadership = leadership
        self._deciding: set[asyncio.Task[Decision]] = set()

    async def schedule(self, body: bytes) -> tuple[bytes, str]:
        """Answer one request: (body, status for the metrics). Raises WireError: 400, 404, 409, 412,
        413, 503.
        """
        vpod = vpod_of_request(body)
        refuse_unless_leading(self._caches, self._leadership, vpod.pool)
        if self._sources.writes_status_of(vpod):
            raise ScheduleRefused(
                f"{vpod.source} is a source of AdapterPool {vpod.pool}: its objects are placed "
                f"without being asked for, "
                "and their status is written; set writeStatus: false on the source to write it "
                "yourself",
                409,
            )
        if self._caches.pools.get(vpod.pool) is None:
            if vpod.deleting and vpod.pool not in self._caches.state.pools:
                return orjson.dumps({"placements": [], "left": 0}), SUCCESS
            if not vpod.deleting:
                raise ScheduleRefused(f"AdapterPool {vpod.pool} does not exist", 404)
        try:
            decision = await self._decide(vpod)
        except StaleVPod as error:
            raise ScheduleRefused(str(error), STALE, retry_after_s=RETRY_SOON_S) from error
        except NotCommitted as error:
            raise ScheduleRefused(str(error), 503, retry_after_s=RETRY_SOON_S) from error
        return _reply(decision), UNSCHEDULABLE if decision.pending else SUCCESS

    async def _decide(self, vpod: VPod) -> Decision:
        """Decide and write to the end, even if the reply comes too late for the caller."""
        if len(self._deciding) >= DECISIONS_MAX:
            raise ScheduleRefused("too many requests at once", 503, retry_after_s=RETRY_SOON_S)
        task = asyncio.create_task(self._placer.schedule(vpod), name=f"schedule {vpod.key}")
        self._deciding.add(task)
        task.add_done_callback(self._decided)
        return await asyncio.shield(task)

    def _decided(self, task: "asyncio.Task[Decision]") -> None:
        self._deciding.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("%s: %s", task.get_name(), error)


def refuse_unless_leading(caches: Caches, leadership: KnowsWhoLeads, pool: str) -> None:
    """Raise ScheduleRefused unless this replica leads the pool (key), and knows what was written
    before.
    """
    if not caches.serves(pool.partition("/")[0]):
        raise ScheduleRefused(
            f"AdapterPool {pool} is not served here (pools.namespaces): ask the "
            f"installation that serves its namespace",
            404,
        )
    if not leadership.leads(pool):
        leader = leadership.leader(pool)
        told = f"{leader} leads, ask it" if leader else "nobody leads yet"
        raise ScheduleRefused(
            f"this replica does not lead: {told}", 503, retry_after_s=RETRY_SOON_S
        )
    if not leadership.acts(pool):
        # Its caches may be outdated.
        told = "this replica is about to lead, and reads what was written before"
        raise ScheduleRefused(told, 503, retry_after_s=RETRY_SOON_S)


def _reply(decision: Decision) -> bytes:
    reply: dict[str, object] = {
        "placements": [
            {"podName": name, "vreplicas": share} for name, share in decision.target.items()
        ],
        "left": decision.pending,
    }
    if decision.pending:
        reason = decision.explanation.told_reason
        # Without a reason, the rest has a place on a pod that is being bound.
        reply |= {"reason": str(reason)} if reason is not None else {}
        reply["retryAfterSeconds"] = RETRY_AFTER_S if reason is not None else RETRY_SOON_S
    return orjson.dumps(reply)


def vpod_of_request(body: bytes) -> VPod:
    """The vpod of a request. Raises WireError, which names the field."""
    return read_request(body, BODY_BYTES_MAX, _vpod)


def _vpod(root: object) -> VPod:
    top = section(root, "", frozenset({"vpod", "pool"}))
    pool = section(top.get("pool"), "pool", frozenset({"namespace", "name"}))
    vpod = section(top.get("vpod"), "vpod", _VPOD_FIELDS)
    kind = _text(vpod, "vpod.kind", _KIND, DEFAULT_KIND)
    group = _text(vpod, "vpod.group", _SUBDOMAIN, DEFAULT_GROUP)
    if group == GROUP:
        raise InvalidObject(
            _SUBJECT, "vpod.group", f"{GROUP} is ours: a VPod is placed by creating it"
        )
    deleted = vpod.get("deleted", False)
    if not isinstance(deleted, bool):
        raise InvalidObject(
            _SUBJECT, "vpod.deleted", f"must be true or false, not {safe_repr(deleted)}"
        )
    listed = vpod.get("placements")
    if isinstance(listed, list) and len(listed) > PLACEMENTS_MAX:
        raise InvalidObject(
            _SUBJECT,
            "vpod.placements",
            f"has {len(listed)} entries, and the limit is {PLACEMENTS_MAX}",
        )
    placements = placements_from(listed, _SUBJECT, "vpod.placements")
    vreplicas = count(
        vpod.get("vreplicas"), _SUBJECT, "vpod.vreplicas", default=0 if deleted else None
    )
    released = deleted or vreplicas == 0
    namespace = _text(vpod, "vpod.namespace", _LABEL)
    name, source = _text(vpod, "vpod.name", _SUBDOMAIN), f"{kind}.{group}".lower()
    return VPod(
        namespace=namespace,
        name=name,
        resource_version=_version(vpod),
        pool=object_key(
            _text(pool, "pool.namespace", _LABEL), _text(pool, "pool.name", _SUBDOMAIN)
        ),
        vreplicas=0 if released else vreplicas,
        weight=count(
            vpod.get("slotsPerVReplica"), _SUBJECT, "vpod.slotsPerVReplica", default=1, minimum=1
        ),
        per_vreplica=named_amounts(
            vpod.get("perVReplica"),
            _SUBJECT,
            "vpod.perVReplica",
            key=f"{namespace}/{name}@{source}",
        ),
        placements={} if deleted else placements,
        deleting=released,
        source=source,
    )


def _version(vpod: Json) -> str:
    """The resourceVersion, "" for none. Kubernetes' are integers that can be compared."""
    value = vpod.get("resourceVersion")
    if value is None or value == "":
        return ""
    return _text(vpod, "vpod.resourceVersion", _VERSION)


def read_request(body: bytes, bytes_max: int, read: Callable[[object], T]) -> T:
    """Return what ``read`` makes of the JSON of a request. Raises WireError, which names the field
    if ``read`` raises InvalidObject.
    """
    if len(body) > bytes_max:
        raise WireError(f"the body of {len(body)} bytes is over the limit of {bytes_max}", 413)
    try:
        root = decode_json(body)
    except ValueError as error:
        raise WireError(f"the body {error}") from error
    try:
        return read(root)
    except InvalidObject as error:
        raise WireError(str(error)) from error


def section(value: object, field: str, known: frozenset[str]) -> Json:
    """A JSON object of a request, with no other fields than ``known``. Raises InvalidObject."""
    if not isinstance(value, Mapping):
        raise InvalidObject(
            _SUBJECT, field, "must be a JSON object" if value is not None else "is required"
        )
    for name in value:
        if name not in known:
            where = f"{field}.{name}" if field else str(name)
            raise InvalidObject(
                _SUBJECT, where[:200], f"is not known; known are {', '.join(sorted(known))}"
            )
    return value


def _text(within: Json, field: str, form: "re.Pattern[str]", default: str = "") -> str:
    value = within.get(field.rpartition(".")[2], default or None)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidObject(
            _SUBJECT,
            field,
            "is required" if value is None else f"is not a valid name: {safe_repr(value, 80)}",
        )
    return value
