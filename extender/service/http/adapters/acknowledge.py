"""``POST /v1/acknowledge``: an adapter says what it serves of its assignment.

.. code-block:: text

    {"uid": "..", "generation": 42, "serving": ["team-a/orders"], "busy": [],
     "load": {"team-a/orders": 12.5}}
    -> {"generation": 42, "stored": true, "load": "kept"}

A list that is not given is empty, so ``serving`` has to name what is served. Any replica takes it.
Only what differs from what is stored is written, so an adapter may repeat itself. An answer 200
says that it is stored at some moment between the request and the answer. This replica's cache may
be behind that, so it reads the pod if it writes nothing. Otherwise an older acknowledgement that
another replica has stored last, for example because the network has delayed it, would stay (seed
610000441). An adapter that reports load says the same again within seconds. So without a lease, its
pod is not read.

In a pool that is exclusive, an answer 200 renews the adapter's lease (``engine.placing.holders``).
Once a minute it writes that the lease was renewed (``pools.adapter_leases``). While the API server
does not answer, no lease is renewed: nobody could tell a replica that is cut off from all others
being down.

``load`` is what
``POST /v1/load`` takes, of the pod itself. Only the leader of a pool that balances load keeps it;
else the answer says why it is ignored. A refusal changes nothing:

.. code-block:: text

    400  the body, or a field of it, is malformed    413  too large
    403  uid is not that of the caller's pod         422  a share is not assigned,
                                                          or is served and drained
    404  the pool has no spec.handoff                429  more than the pod's rate
    409  {"generation": N}: this replica knows generation N. With Retry-After, N is older: its watch
         is behind, or the caller asked another replica before. Else the adapter is behind.
    503  shutting down, or the API server does not take it
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import orjson

from extender.kube.api import ApiError, NotFound
from extender.kube.ratelimit import TokenBucket
from extender.model.assignment import (
    Acknowledgement,
    Assignment,
    acknowledged,
    acknowledgement_from,
    encode_acknowledged,
)
from extender.model.bounded import put_bounded
from extender.model.errors import InvalidObject, WireError
from extender.model.objects import AdapterPod
from extender.service.binding.verbs import SUCCESS
from extender.service.http.adapters.assignments import no_handoff
from extender.service.http.adapters.callers import AdapterCaller
from extender.service.http.load import LoadVerb
from extender.service.http.schedule import RETRY_SOON_S, ScheduleRefused
from extender.service.pools.acknowledgements import AcknowledgementWriter
from extender.service.pools.adapter_leases import AdapterLeases
from extender.service.pools.assignments import own_assignment, tells_adapters
from extender.service.pools.load_reports import Report
from extender.service.watching.caches import Caches

ATTEMPTS: Final = 4
"""A pod changes often while it starts."""
QPS, BURST = 10.0, 20
"""Of one pod: as often as the library for adapters speaks at most. While shares are handed over,
each step of each share waits for an acknowledgement of the newest assignment.
"""
PODS_MAX: Final = 10_000
"""Whose rates are remembered."""
STORED, UNCHANGED = "stored", "unchanged"
OUTCOMES: Final[Mapping[int, str]] = {
    400: "malformed",
    403: "another pod",
    404: "no handoff",
    408: "slow",
    409: "another generation",
    413: "too large",
    415: "malformed",
    422: "wrong shares",
    429: "too often",
    503: "not stored",
    504: "late",
}
"""Of a refusal, by the answer's status."""
OUTCOME_VALUES: Final = tuple(dict.fromkeys([STORED, UNCHANGED, *OUTCOMES.values()]))


class AcknowledgeVerb:
    """The endpoint, from body to body."""

    def __init__(
        self,
        caches: Caches,
        writer: AcknowledgementWriter,
        leases: AdapterLeases,
        load: LoadVerb,
    ) -> None:
        self._caches = caches
        self._writer = writer
        self._leases = leases
        self._load = load
        self._rates: OrderedDict[str, TokenBucket] = OrderedDict()
        """By the pod's UID."""
        self.outcomes: Counter[str] = Counter()
        """Acknowledgements by ``OUTCOME_VALUES``."""

    def wait_s(self, caller: AdapterCaller) -> int:
        """Count a request of the caller against its rate. Seconds to wait first; 0 for none."""
        rate = self._rates.get(caller.uid)
        if rate is None:
            rate = TokenBucket(QPS, BURST)
            put_bounded(self._rates, caller.uid, rate, PODS_MAX)
        return math.ceil(rate.try_acquire())

    async def acknowledge(self, caller: AdapterCaller, body: bytes) -> tuple[bytes, str]:
        """Answer one request of an adapter: (body, status for the metrics). Raises WireError."""
        try:
            said = acknowledgement_from(body)
        except InvalidObject as error:
            raise WireError(str(error)) from error
        if said.uid != caller.uid:
            raise WireError(f"uid is not that of pod {caller.pod}, whose token this is", 403)
        try:
            stored = await self._store(caller, said)
        except NotFound as error:
            raise WireError(f"pod {caller.pod} is gone", 403) from error
        except ApiError as error:
            raise _not_stored(str(error)) from error
        self.outcomes[STORED if stored else UNCHANGED] += 1
        answer: dict[str, object] = {"generation": said.generation, "stored": stored}
        if said.load:
            answer["load"] = await self._take_load(caller, said)
        return orjson.dumps(answer), SUCCESS

    async def _store(self, caller: AdapterCaller, said: Acknowledgement) -> bool:
        """Store it if it is new, and return whether it was. Raises WireError, ApiError."""
        stored = confirmed = False
        for _ in range(ATTEMPTS):
            pod = self._caches.pods.latest(caller.pod)
            if pod is None or pod.uid != caller.uid:
                raise WireError(f"pod {caller.pod} is gone", 403)
            text, renews = self._text_of(pod, said)
            if text == pod.acknowledged_text:
                if confirmed or (said.load and not renews):
                    return stored
                await self._writer.read(pod)
            elif await self._writer.store(pod, text):
                return True
            else:
                stored = True
            confirmed = True
        raise _not_stored(f"pod {caller.pod} changes all the time")

    def _text_of(self, pod: AdapterPod, said: Acknowledgement) -> tuple[str, bool]:
        """What is to be stored, and whether it renews a lease. Raises WireError if it does not go
        with the pod's assignment.
        """
        if not tells_adapters(self._caches, pod.pool):
            raise WireError(no_handoff(pod), 404)
        known = own_assignment(pod)
        if known is None or known.generation != said.generation:
            raise _another_generation(known, said)
        if problem := said.problem(known):
            raise WireError(problem, 422)
        stored, renews = acknowledged(said, known), known.lease_s > 0
        if renews:
            stored = replace(stored, renewed=self._leases.renewed(pod))
        return encode_acknowledged(stored), renews

    async def _take_load(self, caller: AdapterCaller, said: Acknowledgement) -> str:
        pod = self._caches.pods.latest(caller.pod)
        if pod is None:
            return "ignored: the pod is gone"
        reports = [Report(vpod, pod.name, load) for vpod, load in said.load.items()]
        try:
            refused = await self._load.take_reports(pod.pool, None, reports)
        except ScheduleRefused as error:
            return f"ignored: {error}"
        if not refused:
            return "kept"
        report, why = refused[0]
        return f"kept {len(reports) - len(refused)} of {len(reports)}: {report.vpod[:520]}: {why}"


def _another_generation(known: Assignment | None, said: Acknowledgement) -> ScheduleRefused:
    here = known.generation if known is not None else 0
    is_behind = said.generation > here
    return ScheduleRefused(
        f"generation {said.generation} is not known here yet"
        if is_behind
        else f"generation {said.generation} is out of date: acknowledge {here}",
        409,
        retry_after_s=RETRY_SOON_S if is_behind else None,
        facts={"generation": here},
    )


def _not_stored(problem: str) -> ScheduleRefused:
    return ScheduleRefused(f"not stored: {problem[:500]}", 503, retry_after_s=RETRY_SOON_S)
