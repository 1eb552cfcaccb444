"""The listener for controllers: clients without a token, with made-up ones and with those of
others, beside callers that are allowed; and what an allowed caller must not get.

Meanwhile filters, reviews and a known caller are answered in time, TokenReviews stay within their
rate, and a new caller from another address gets in.
"""

import asyncio
import base64
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final, Self

import aiohttp

from extender.kube.token_review import ReviewLimits
from tests.attack.listening import CALLER, SystemWithCallers
from tests.attack.target import PERIOD_S, Honest, Target
from tests.e2e.scenario import POOL
from tests.e2e.waiting import NotYet, eventually

log = logging.getLogger(__name__)

LIMITS: Final = ReviewLimits()
FORMS: Final[Mapping[str, int]] = {
    "handshakes": 300,
    "heads": 50,
    "schedules": 200,
    "schedule trailers": 20,
    "made-up tokens": 20,
    "others' tokens": 20,
}
"""Connections of each, see ``flood``."""
TENANT: Final = "callers-tenant"
STRANGER: Final = "not-selected"
BEGUN_WITHIN_S: Final = 30.0
NEW_CALLER_WITHIN_S: Final = 3.0
KNOWN_TOKENS: Final = 2
"""Tokens of the allowed account that are sent here: each is reviewed once in 10 s."""


def token_of(account: str, number: int = 0) -> str:
    """A token as the embedded API server reviews it."""
    name = f"system:serviceaccount:{account.replace('/', ':')} {number}"
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


class _Caller:
    """An allowed caller at 127.0.0.2: the floods come from another address."""

    def __init__(self, system: SystemWithCallers, number: int) -> None:
        self._system = system
        self._headers = {"Authorization": f"Bearer {token_of(CALLER, number)}"}
        self._connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=5.0)
        self._session = aiohttp.ClientSession(
            headers=self._headers, connector=self._connector, timeout=timeout
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self, vpod: Mapping[str, Any] | None = None, path: str = "/v1/schedule"
    ) -> tuple[int, Any]:
        """Schedule a vpod, or GET another path: status, and the JSON or the text."""
        body = None
        if vpod is not None:
            pool = {"namespace": self._system.namespace, "name": POOL}
            whole = {"namespace": TENANT, "name": "a", "kind": "Broker", "group": "x.dev", **vpod}
            body = {"vpod": whole, "pool": pool}
        async with self._session.request(
            "GET" if body is None else "POST",
            self._system.schedule_url + path,
            json=body,
            ssl=self._system.schedule_tls,
        ) as reply:
            is_json = reply.status == 200 and reply.content_type == "application/json"
            return reply.status, await (reply.json() if is_json else reply.text())


async def play(target: Target) -> list[str]:
    """What is wrong."""
    system = target.system
    assert isinstance(system, SystemWithCallers)
    async with _Caller(system, 0) as known:
        status, reply = await known.ask({"vreplicas": 1})
        if status != 200:
            return [f"a caller is not answered before any attack: {status} {reply}"]
        wrong = await _beside_floods(target, system, known)
        wrong += await _beyond_what_is_its_own(known)
        status, reply = await known.ask({"deleted": True})
        if status != 200:
            wrong.append(f"a vpod is not given back: {status} {reply}")
    return wrong


async def _beside_floods(target: Target, system: SystemWithCallers, known: _Caller) -> list[str]:
    seconds = 6.0 if target.short else 25.0
    reviews_before, began = await _reviews(system), time.monotonic()
    async with target.flooded({"callers": FORMS}, seconds + BEGUN_WITHIN_S):

        async def begun() -> bool:
            if (reviews := await _reviews(system) - reviews_before) < LIMITS.new_burst:
                raise NotYet(f"{reviews} TokenReviews")
            return True

        await eventually(begun, BEGUN_WITHIN_S, "the floods cost TokenReviews")
        asking = asyncio.create_task(_ask_on(target, known, seconds))
        newcomer = asyncio.create_task(_new_caller(system, seconds / 2))
        seen = dict(await target.ask(seconds))
        seen["callers"] = await asking
        new_caller_s = await newcomer
        reviews, took_s = await _reviews(system) - reviews_before, time.monotonic() - began
    wrong = []
    for program, honest in seen.items():
        p99_ms = honest.p99_s() * 1e3
        log.info("%s: %d answers, p99 %.0f ms", program, len(honest.took_s), p99_ms)
        if honest.failed:
            wrong.append(
                f"{program}: {len(honest.failed)} of {len(honest.took_s)} failed: "
                f"{honest.failed[0]}"
            )
        # A caller's schedule writes ledgers only where something changes: it is as quick as filter.
        if target.is_late(program if program in target.quiet else "extender", honest):
            wrong.append(f"{program} beside floods of the listener: p99 {p99_ms:.0f} ms")
    log.info(
        "%d reviews in %.0f s; a new caller waited %.1f s; %.0f MiB",
        reviews,
        took_s,
        new_caller_s,
        target.programs["extender"].peak_memory_bytes() / 1024**2,
    )
    most = LIMITS.new_burst + LIMITS.new_qps * took_s + KNOWN_TOKENS * (1 + took_s / 10.0)
    if reviews > most:
        wrong.append(f"{reviews} TokenReviews in {took_s:.0f} s, and {most:.0f} are allowed")
    if new_caller_s > NEW_CALLER_WITHIN_S:
        wrong.append(f"a new caller from another address waited {new_caller_s:.1f} s")
    return wrong


async def _ask_on(target: Target, caller: _Caller, seconds: float) -> Honest:
    async def question() -> str:
        status, reply = await caller.ask({"vreplicas": 1})
        return "" if status == 200 else f"{status}: {reply}"[:200]

    seen = Honest()
    await target.ask_on("extender", question, time.monotonic() + seconds, seen)
    return seen


async def _new_caller(system: SystemWithCallers, after_s: float) -> float:
    """How long a caller with a token that nobody has sent waits for its first answer, which may
    need several requests.
    """
    await asyncio.sleep(after_s)
    began = time.monotonic()
    async with _Caller(system, 1) as caller:
        while time.monotonic() < began + 2 * NEW_CALLER_WITHIN_S:
            status, _ = await caller.ask({"vreplicas": 1})
            if status == 200:
                break
            await asyncio.sleep(PERIOD_S)
    return time.monotonic() - began


async def _beyond_what_is_its_own(caller: _Caller) -> list[str]:
    """What an allowed caller is refused: (what, status, answer) of each that it is not."""
    _, latest = await caller.ask({"vreplicas": 2, "resourceVersion": "10"})
    asked: list[tuple[str, int, tuple[int, Any]]] = [
        ("an old body again", 412, await caller.ask({"vreplicas": 9, "resourceVersion": "9"})),
        ("an object of our own kind", 400, await caller.ask({"vreplicas": 1, **_OURS})),
        ("a name that is a path", 400, await caller.ask({"vreplicas": 1, "name": "../a"})),
        ("bind", 404, await caller.ask({"vreplicas": 1}, "/v1/bind")),
        ("metrics", 404, await caller.ask(path="/metrics")),
        ("all pools", 400, await caller.ask(path="/state.json")),
    ]
    wrong = [f"{what}: {answer}" for what, status, answer in asked if answer[0] != status]
    status, reply = await caller.ask({"vreplicas": 1, "namespace": STRANGER, "name": "b"})
    if status != 200 or reply["placements"] or reply["left"] != 1:
        wrong.append(f"a namespace that the pool does not select: {status} {reply}")
    status, reply = await caller.ask({"vreplicas": 2, "resourceVersion": "10"})
    if status != 200 or reply["placements"] != latest["placements"]:
        wrong.append(f"the same body again: {latest}, then {status} {reply}")
    return wrong


_OURS: Final = {"kind": "VPod", "group": "vreplica.dev"}


async def _reviews(system: SystemWithCallers) -> int:
    """TokenReviews that the service has sent."""
    _, text = await system.service.get("/metrics")
    found = re.search(r"^vreplica_scheduler_token_reviews_total (\S+)$", text, re.MULTILINE)
    assert found is not None, "there is no metric of TokenReviews"
    return int(float(found[1]))
