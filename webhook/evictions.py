"""``/evict``: an eviction of an adapter pod (``pods/eviction``) waits until other adapters serve
what the pod carries, in pools that hand shares over.

An eviction that has to wait is refused with 429, as by a PodDisruptionBudget: kubectl drain and
node autoscalers try again. The refused pod gets the annotation of ``model.eviction``. The leader
gives it its turn, and then places what it carries elsewhere. Once its ledger is empty, the eviction
is allowed. At ``Eviction.ends_at_s`` it is allowed, too, whatever the pod still carries.

The pod is read from the API server: an eviction is rare, and a cache of all pods would follow each
write of a ledger. As with ``failurePolicy: Ignore``, a webhook that cannot do its work holds nobody
up. The eviction is allowed, as it is without a webhook, if the pod cannot be read, if it has no
mark yet and cannot get one, or if this takes too long.

It is allowed, too, once no replica of the service leads: nobody would hand anything over. That is
so once the Lease has not changed for ``UNLED_S``, by this process's own clock, as replicas
themselves judge it. So the first attempt always waits.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from extender.kube.api import LEASES, PODS, Api, ApiError, Conflict, NotFound, PatchType
from extender.kube.first_errors import describe_error
from extender.model.counted import counted
from extender.model.decode import pod_from
from extender.model.errors import InvalidObject
from extender.model.eviction import Eviction, eviction_of, has_to_wait, mark_patch
from extender.model.names import NAME_CHARS_MAX
from extender.model.objects import AdapterPod, AdapterPool
from extender.model.reading import mapping, text
from extender.telemetry.logs import RateLimitFilter
from webhook.caches import WebhookCaches
from webhook.review import ALLOWED, LINES_PER_S, AdmissionRequest, Verdict, denied

MARK_S: Final = 20.0
"""A mark is renewed after this time at the earliest."""
UNLED_S: Final = 60.0
"""A leader renews its Lease every few seconds, and the next one takes over within 20 s."""
LEASE_TIMEOUT_S: Final = 1.0
API_TIMEOUT_S: Final = 3.0
"""For reading and marking a pod. The API server gives up after 5 s (timeoutSeconds)."""
UNDER_WAY_MAX: Final = 64
"""More reviews at once are answered with 429. They would take the connections of other reviews."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_log: Final = logging.getLogger(__name__)
_log.addFilter(RateLimitFilter(LINES_PER_S))


class Evictions:
    """Answers the reviews of ``/evict``. ``now``: epoch seconds. ``lease``: namespace and name of
    the service's Lease; None if it elects no leader.
    """

    def __init__(
        self,
        api: Api,
        caches: WebhookCaches,
        *,
        now: Callable[[], float],
        lease: tuple[str, str] | None = None,
    ) -> None:
        self._api = api
        self._caches = caches
        self._now = now
        self._lease = lease
        self._under_way = 0
        """Reviews that wait for the API server."""
        self._renewed: tuple[str, float] | None = None
        """The Lease's renewTime, and the event loop's time when it was first read."""

    async def review(self, request: AdmissionRequest) -> Verdict:
        """Return the verdict on one request. Never raises."""
        if (request.group, request.resource, request.subresource) != ("", "pods", "eviction"):
            return ALLOWED
        if request.operation != "CREATE" or not self._hands_over_in(request.namespace):
            return ALLOWED
        name = request.name or text(request.object or {}, "metadata", "name")
        if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
            return ALLOWED  # no pod has such a name
        if self._under_way >= UNDER_WAY_MAX:
            return denied("too many evictions are looked at; try again", code=429)
        self._under_way += 1
        try:
            return await self._answer(request, name)
        finally:
            self._under_way -= 1

    async def _answer(self, request: AdmissionRequest, name: str) -> Verdict:
        try:
            async with asyncio.timeout(API_TIMEOUT_S):
                return await self._verdict(request, name)
        except NotFound:
            return ALLOWED
        except (ApiError, InvalidObject, TimeoutError) as error:
            why = f"pod {request.namespace}/{name} is evicted without a hand-over"
            _log.warning("%s: %s", why, describe_error(error))
            return Verdict(warnings=(f"{why}: {describe_error(error)}",))

    def _hands_over_in(self, namespace: str) -> bool:
        pools = self._caches.pools.objects.values()
        return any(pool.namespace == namespace and pool.hands_over for pool in pools)

    async def _verdict(self, request: AdmissionRequest, name: str) -> Verdict:
        pod = pod_from(await self._api.get(PODS, request.namespace, name))
        if _is_about_another(request, pod):
            return ALLOWED  # the API server answers 409
        pool = self._caches.pool(pod.pool)
        if pool is None or not has_to_wait(pod, pool):
            return ALLOWED
        known, now_s = eviction_of(pod), self._now()
        if known is not None and not (known.by_leader or known.is_fresh(now_s)):
            known = None  # somebody has given up
        if known is not None and known.is_over(pool, now_s):
            return _allowed(pod, "they were not handed over in time")
        if await self._is_unled():
            why = (
                f"no replica of the service has led for {UNLED_S:.0f} s, so nobody hands them over"
            )
            return _allowed(pod, why)
        if not (is_dry_run(request) or (known is not None and known.by_leader)):
            await self._mark(pod, known, now_s)
        if known is None or known.waits:
            return denied(_waits(pod, pool, known.behind if known is not None else ""), code=429)
        return denied(
            f"pod {pod.key} of AdapterPool {pool.key} still has {_carried(pod)} to hand over to "
            f"other pods; once that is done its eviction succeeds, so try again",
            code=429,
        )

    async def _is_unled(self) -> bool:
        """Whether no replica of the service has led for a while. False if nobody knows. The Lease
        is that of the first bucket: whoever runs takes it.
        """
        if self._lease is None:
            return False
        try:
            async with asyncio.timeout(LEASE_TIMEOUT_S):
                lease = await self._api.get(LEASES, *self._lease)
        except (ApiError, TimeoutError) as error:
            _log.info("Lease %s/%s: %s", *self._lease, describe_error(error))
            return False
        renewed, clock_s = text(lease, "spec", "renewTime"), asyncio.get_running_loop().time()
        if self._renewed is None or self._renewed[0] != renewed:
            self._renewed = (renewed, clock_s)
        return clock_s - self._renewed[1] > UNLED_S

    async def _mark(self, pod: AdapterPod, known: Eviction | None, now_s: float) -> None:
        """Write that somebody tries to evict the pod.

        Raises ApiError if the pod has no mark yet and cannot get one.
        """
        if known is not None and now_s - known.latest_s < MARK_S:
            return
        mark = Eviction(now_s, now_s) if known is None else known._replace(latest_s=now_s)
        # Another webhook may mark the pod meanwhile, or the leader give it its turn. So the patch
        # names the version that was read.
        patch = mark_patch(pod, mark)
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, patch, patch_type=PatchType.MERGE)
        except Conflict:
            return  # the next attempt reads the pod anew
        except ApiError as error:
            if known is None:
                raise
            _log.info("pod %s is not marked again: %s", pod.key, describe_error(error))


def is_dry_run(request: AdmissionRequest) -> bool:
    """Whether nothing may be written: the request says so, or the Eviction's deleteOptions."""
    options: Mapping[str, object] = mapping(request.object or {}, "deleteOptions")
    return request.dry_run or bool(options.get("dryRun"))


def _is_about_another(request: AdmissionRequest, pod: AdapterPod) -> bool:
    """Whether the Eviction is for a former pod of the name, or for a version that has changed. The
    API server compares its preconditions only after admission.
    """
    wanted = mapping(request.object or {}, "deleteOptions", "preconditions")
    uid, version = text(wanted, "uid"), text(wanted, "resourceVersion")
    return uid not in ("", pod.uid) or version not in ("", pod.resource_version)


def _allowed(pod: AdapterPod, why: str) -> Verdict:
    """The pod goes although it carries vreplicas, which is told."""
    note = f"pod {pod.key} may be evicted with {_carried(pod)}: {why}"
    _log.warning("%s", note)
    return Verdict(warnings=(note,))


def _waits(pod: AdapterPod, pool: AdapterPool, behind: str) -> str:
    limits = pool.max_unavailable
    most = f"pool: {limits.pool}, perVPod: {limits.per_vpod}"
    why = behind or (
        f"spec.handoff.maxUnavailable ({most}) limits how many pods are unavailable at the same "
        f"time"
    )
    return (
        f"pod {pod.key} of AdapterPool {pool.key} waits for its turn to hand over {_carried(pod)}: "
        f"{why}; try again"
    )


def _carried(pod: AdapterPod) -> str:
    if pod.ledger_error:
        return "vreplicas that cannot be read"
    return counted(sum(share.vreplicas for share in pod.ledger.values()), "vreplica")
