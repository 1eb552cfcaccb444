"""The library for adapters' authors and the service in virtual time: requests are function calls
that take ``LATENCY_S`` each way.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import orjson
from vreplica_adapter import Adapter
from vreplica_adapter.service import ServiceError

from extender.kube.token_review import TokenUser
from extender.model.errors import WireError
from extender.service.app import Service
from extender.service.http.adapters.acknowledge import AcknowledgeVerb
from extender.service.http.adapters.callers import AdapterCaller
from extender.service.pools.assignments import own_assignment
from tests.support.builders import NS
from tests.support.service import World

LATENCY_S = 0.01
LOOK_S = 0.02


class InProcess:
    """What ``vreplica_adapter.service.Service`` is to one adapter. ``statuses`` counts answers."""

    def __init__(self, service: Service, verb: AcknowledgeVerb, caller: AdapterCaller) -> None:
        self._caches, self._verb, self._caller = service.caches, verb, caller
        self.statuses: Counter[int] = Counter()

    async def post(self, _path: str, body: bytes, _limit_s: float) -> bytes:
        """As ``AdapterServer`` answers ``POST /v1/acknowledge``."""
        await asyncio.sleep(LATENCY_S)
        if wait_s := self._verb.wait_s(self._caller):
            raise self._refusal(429, "too often", wait_s)
        try:
            answer, _ = await self._verb.acknowledge(self._caller, body)
        except WireError as error:
            facts = getattr(error, "facts", {})
            wait_s = getattr(error, "retry_after_s", None) or 0
            raise self._refusal(error.status, str(error), wait_s, **facts) from error
        await asyncio.sleep(LATENCY_S)
        self.statuses[200] += 1
        return answer

    def _refusal(self, status: int, text: str, wait_s: int, **facts: object) -> ServiceError:
        self.statuses[status] += 1
        said = orjson.dumps({"error": text, **facts}).decode()
        return ServiceError(text, status=status, retry_after_s=wait_s, said=said)

    async def lines(self, _path: str) -> AsyncGenerator[bytes]:
        """As the stream of ``GET /v1/assignment``."""
        sent = None
        while True:
            await asyncio.sleep(LOOK_S)
            pod = self._caches.pods.latest(self._caller.pod)
            if pod is not None and pod.assignment_text != sent and own_assignment(pod) is not None:
                sent = pod.assignment_text
                assert sent is not None
                yield sent.encode()

    def avoid(self) -> None:
        """There is one replica."""

    async def close(self) -> None:
        """Nothing is open."""


async def adapter_of(
    world: World, service: Service, verb: AcknowledgeVerb, ordinal: int, **arguments: Any
) -> tuple[Adapter, InProcess]:
    """The adapter of a pod, and its connection to the service."""
    uid = await world.uid(ordinal)
    caller = AdapterCaller(TokenUser("adapter"), f"{NS}/dispatcher-{ordinal}", uid)
    clock = asyncio.get_running_loop().time
    adapter = Adapter(
        urls=["http://in-process"],
        assignment_file=Path("/nonexistent"),
        handle_sigterm=False,
        clock=clock,
        grace_s=1.0,
        **arguments,
    )
    connection = InProcess(service, verb, caller)
    for part in (adapter, adapter._listener, adapter._speaker):
        part._service = connection  # type: ignore[assignment]
    return adapter, connection
