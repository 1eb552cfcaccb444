"""The ``http`` cases: the real client over a real socket, against a server that answers as the case
says.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from extender.config.kube_scheduler import ExtenderConfig
from extender.lab.scheduler.algorithm import (
    extenders_binding,
    find_nodes_that_pass_extenders,
    prioritize_nodes,
)
from extender.lab.scheduler.cache import NodeNotFound, Snapshot
from extender.lab.scheduler.extender_client import (
    ExtenderError,
    HTTPExtender,
    Victims,
)
from extender.lab.scheduler.extender_transport import AiohttpTransport
from extender.lab.scheduler.framework import CycleState, NodeStatuses, Profile
from extender.lab.scheduler.types import NodeInfo
from tests.conformance.extender_fakes import (
    Outcome,
    a_bare_pod,
    a_node,
    a_pod,
    a_snapshot,
    differs,
    first,
)
from tests.conformance.result import Case, Difference

NULL_VICTIMS = Difference(
    "extender-null-victims",
    "a null entry in NodeNameToMetaVictims crashes kube-scheduler; the embedded one answers with "
    "an error",
)


# Over HTTP


class CannedServer:
    """A raw HTTP server that answers every request as the case says, and keeps what it got."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._response = response
        self.requests: list[dict[str, Any]] = []
        self._closing = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._serving.discard(task)

    async def close(self) -> None:
        """End what is still being answered slowly."""
        self._closing.set()
        if self._serving:
            await asyncio.wait(self._serving, timeout=5)

    async def _delay(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = (await reader.readline()).decode("latin-1").split()
        if len(line) < 2:
            return False
        headers: dict[str, str] = {}
        while (raw := (await reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = raw.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length") or 0))
        self.requests.append(
            {
                "method": line[0],
                "path": line[1],
                "contentType": headers.get("content-type"),
                "body": orjson.loads(body) if body else None,
            }
        )
        if self._response.get("delayMs"):
            await self._delay(self._response["delayMs"] / 1000)
        if self._response.get("closeConnection"):
            return False
        more: Mapping[str, str] = {}
        if line[1] == "/redirected":
            status, answer = 200, b'{"NodeNames": ["n1"]}'
        else:
            status, answer = self._response["status"], self._response["body"].encode()
            more = self._response.get("headers") or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in more.items())
        writer.write(
            f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer
        )
        await writer.drain()
        return True


@asynccontextmanager
async def _extender(case: Case) -> AsyncIterator[tuple[HTTPExtender, CannedServer, str]]:
    canned = CannedServer(case["response"])
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    raw = case["config"]
    config = ExtenderConfig(
        url_prefix=base + raw["urlSuffix"],
        filter_verb=raw["filterVerb"],
        prioritize_verb=raw["prioritizeVerb"],
        bind_verb=raw["bindVerb"],
        preempt_verb=raw["preemptVerb"],
        weight=raw["weight"],
        node_cache_capable=raw["nodeCacheCapable"],
        ignorable=raw["ignorable"],
        http_timeout_s=raw["timeoutMs"] / 1000,
    )
    transport = AiohttpTransport([config])
    try:
        yield HTTPExtender(config, transport), canned, base
    finally:
        await transport.close()
        await canned.close()
        server.close()
        await server.wait_closed()


async def _tried(call: Awaitable[Any], base: str) -> tuple[Any, str | None]:
    try:
        return await call, None
    except ExtenderError as error:
        return None, str(error).replace(base, "http://EXT")


async def check_http(case: Case) -> Outcome:
    if "panic" in case["expected"]:
        return await _http_panic(case)
    check = {
        "filter": _http_filter,
        "prioritize": _http_prioritize,
        "bind": _http_bind,
        "preempt": _http_preempt,
    }[case["call"]]
    async with _extender(case) as (extender, canned, base):
        problem = await check(case, extender, base)
        requests = list(canned.requests)
    # The call and the scheduling cycle are two runs of the same exchange.
    runs = 1 if case["call"] == "preempt" else 2
    problem = problem or differs("request count", case["request_count"] * runs, len(requests))
    if problem or "request" not in case:
        return problem
    return differs("request", case["request"], requests[0])


async def _http_panic(case: Case) -> Outcome:
    answer = orjson.loads(case["response"]["body"])
    victims = (
        next((v for k, v in answer.items() if k.lower() == "nodenametometavictims"), None) or {}
    )
    if None not in victims.values():
        return "kube-scheduler crashes here, for a reason that is not a null entry"
    async with _extender(case) as (extender, _, base):
        _, error = await _tried(_process_preemption(case, extender), base)
    return NULL_VICTIMS if error else "a null entry was taken"


async def _http_filter(case: Case, extender: HTTPExtender, base: str) -> str | None:
    pod, nodes = a_pod(), [a_node(name) for name in case["nodes"]]
    expected = case["expected"]["filter"]
    result, error = await _tried(extender.filter(pod, nodes), base)
    got = {
        "error": error,
        "failed": result.failed if result else None,
        "failedAndUnresolvable": result.failed_and_unresolvable if result else None,
        "nodes": [node.name for node in (result.nodes or ())] if result else [],
        "nodesNil": result is None or result.nodes is None,
    }
    statuses = NodeStatuses()
    # With no nodes the cycle would not call at all; the recorded calls are then of the extender
    # alone.
    chain = find_nodes_that_pass_extenders([extender], pod, nodes or [], statuses)
    passed, cycle_error = await _tried(chain, base)
    if not nodes:
        await _tried(extender.filter(pod, nodes), base)
    cycle = {
        "error": cycle_error,
        "nodes": [node.name for node in passed or ()],
        "statuses": {n: f"{s.code.label}: {s.message}" for n, s in statuses.explicit.items()},
    }
    return first(
        differs("filter", expected, got),
        differs("scheduling cycle", case["expected"]["schedulingCycle"], cycle),
    )


async def _http_prioritize(case: Case, extender: HTTPExtender, base: str) -> str | None:
    pod, nodes = a_pod(), [a_node(name) for name in case["nodes"]]
    result, error = await _tried(extender.prioritize(pod, nodes), base)
    priorities, weight = result or (None, 0)
    listed = (
        None if priorities is None else [{"Host": p.host, "Score": p.score} for p in priorities]
    )
    profile = Profile([], [])
    scores = await prioritize_nodes(
        [extender], profile, CycleState(), pod, nodes, a_snapshot(nodes)
    )
    cycle = {"error": None, "totalScores": {score.name: score.total for score in scores}}
    return first(
        differs(
            "prioritize",
            case["expected"]["prioritize"],
            {"error": error, "list": listed, "weight": weight},
        ),
        differs("scheduling cycle", case["expected"]["schedulingCycle"], cycle),
    )


async def _http_bind(case: Case, extender: HTTPExtender, base: str) -> str | None:
    _, error = await _tried(extender.bind(a_pod(), "n1"), base)
    bound, cycle_error = await _tried(extenders_binding([extender], a_pod(), "n1"), base)
    cycle = {"boundByExtender": bound is not False, "error": cycle_error}
    return first(
        differs("bind", case["expected"]["bind"], {"error": error}),
        differs("scheduling cycle", case["expected"]["schedulingCycle"], cycle),
    )


class _RecordedLister:
    """Nodes by name; an unknown one is refused in the words of the lister that the cases were
    recorded with.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def get(self, name: str) -> NodeInfo:
        try:
            return self._snapshot.get(name)
        except NodeNotFound as error:
            raise ExtenderError(f"unable to find node: {name}") from error


def _process_preemption(case: Case, extender: HTTPExtender) -> Awaitable[dict[str, Victims]]:
    pods = {name: a_bare_pod(name) for names in case["node_pods"].values() for name in names}
    snapshot = a_snapshot([a_node(name) for name in case["nodes"]])
    for node, names in case["node_pods"].items():
        if node in snapshot.by_name:
            snapshot.by_name[node].pods.update({pods[name].uid: pods[name] for name in names})
    victims = {
        node: Victims(tuple(pods[name] for name in names))
        for node, names in case["candidate_victims"].items()
    }
    return extender.process_preemption(a_pod(), victims, _RecordedLister(snapshot))


async def _http_preempt(case: Case, extender: HTTPExtender, base: str) -> str | None:
    result, error = await _tried(_process_preemption(case, extender), base)
    got = {
        "error": error,
        "supportsPreemption": extender.supports_preemption,
        "victims": {
            node: {
                "numPDBViolations": entry.pdb_violations,
                "pods": [pod.name for pod in entry.pods],
            }
            for node, entry in (result or {}).items()
        },
    }
    return differs("preempt", case["expected"]["preempt"], got)
