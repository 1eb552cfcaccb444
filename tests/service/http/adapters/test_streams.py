"""Streams of assignments and placements: what comes when, and how they end."""

import asyncio
import gc
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import orjson
import pytest

from extender.config.model import AdaptersConfig, Config
from extender.engine.cache.caches import AdapterPodAssumeCache, VPodAssumeCache
from extender.kube.api import VPODS, PatchType
from extender.model.names import ASSIGNMENT_ANNOTATION
from extender.model.objects import Handoff, HandoffMode
from extender.service.http.adapters import streams
from extender.service.http.adapters.assignments import OF_POD_MAX
from extender.service.http.adapters.placements import PlacementAnswers
from tests.service.authority import client_context
from tests.service.http.adapters.scene import VPOD, Adapters, adapters, beside, token
from tests.support.builders import NS, POOL, a_pod, a_pool
from tests.support.service import TENANT, until

ASSIGNMENT = "/v1/assignment?watch=true"
PLACEMENTS = f"/v1/placements/{VPOD}?watch=true"
SOON_S = 1.0
"""HANDOFF: p99 of a change's way to a reader."""


class Lines:
    """What a stream has sent."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self.reply = reply
        self.empty = 0
        """Keep-alives before the last line."""

    async def raw(self, timeout_s: float = SOON_S) -> bytes:
        """The next line that is not empty; b"" at the end."""
        async with asyncio.timeout(timeout_s):
            while True:
                line = await self.reply.content.readline()
                if line != b"\n":
                    return line
                self.empty += 1

    async def next(self, timeout_s: float = SOON_S) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(await self.raw(timeout_s))
        return found

    async def end(self, timeout_s: float = SOON_S) -> None:
        """Wait for the orderly end, with no further line."""
        assert await self.raw(timeout_s) == b""


@asynccontextmanager
async def watching(it: Adapters, path: str, bearer: str) -> AsyncIterator[Lines]:
    async with it.request("GET", path, bearer) as reply:
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "application/jsonl"
        yield Lines(reply)


def is_open(it: Adapters, count: int, kind: str = "assignment"):
    """For ``until``."""

    async def is_so() -> bool:
        assert it.service.adapter_server is not None
        return it.service.adapter_server.streams[kind].open == count

    return is_so


def ended(it: Adapters, kind: str = "assignment") -> dict[str, int]:
    assert it.service.adapter_server is not None
    return dict(+it.service.adapter_server.streams[kind].ended)


async def test_an_adapter_is_told_what_is_so_at_once_and_each_newer_generation_soon(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        await it.told(0, 2)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            stored = await it.world.annotation(0, ASSIGNMENT_ANNOTATION)
            raw = await lines.raw()
            assert raw.decode() == f"{stored}\n"
            generation = orjson.loads(raw)["generation"]
            for vreplicas in (6, 8, 12):
                await it.world.set_vreplicas("a", vreplicas)
                seen = 0
                while seen != vreplicas // 2:
                    told = await lines.next()
                    assert told["generation"] > generation
                    generation, seen = told["generation"], told["shares"][VPOD]["vreplicas"]
            assert generation == (await it.assignment(0))["generation"]


async def test_an_adapter_that_comes_before_its_assignment_gets_it_once_it_is_written(
    tmp_path: Path,
):
    async with adapters(tmp_path, 0, handoff=None) as it:
        await until(it.world.published, {0: 4}, timeout_s=5)
        pause = it.api.pause("patch", "pods")
        await it.world.patch_pool(handoff={})
        await pause.reached.wait()
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            assert await lines.reply.content.readline() == b"\n"
            pause.go_on.set()
            assert (await lines.next())["pod"] == f"{NS}/dispatcher-0"


async def test_changes_of_other_pods_and_of_what_is_not_told_send_nothing(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        await it.told(0, 2)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            await it.world.annotate(0, other="1")
            await it.world.annotate(1, other="1")
            await it.acknowledge(1)
            with pytest.raises(TimeoutError):
                await lines.raw(0.3)
            assert lines.empty == 0


async def test_a_replica_that_does_not_lead_tells_as_soon(tmp_path: Path):
    async with adapters(tmp_path, 0) as leader:
        await leader.told(0, 4)
        second = tmp_path / "second"
        second.mkdir()
        async with beside(leader, second) as it, watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            took = []
            for vreplicas in range(5, 15):
                began = time.monotonic()
                await leader.world.set_vreplicas("a", vreplicas)
                while (await lines.next())["shares"][VPOD]["vreplicas"] != vreplicas:
                    pass
                took.append(time.monotonic() - began)
            assert max(took) < SOON_S


async def test_an_empty_line_shows_that_the_replica_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "KEEPALIVE_S", 0.05)
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            for _ in range(3):
                assert await asyncio.wait_for(lines.reply.content.readline(), SOON_S) == b"\n"


async def test_an_assignment_that_a_person_has_put_on_several_lines_is_one_line(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        told = await it.assignment(0) | {"generation": 50}
        text = orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            await it.world.annotate(0, **{ASSIGNMENT_ANNOTATION: text})
            assert await lines.next() == told


async def test_an_older_generation_is_not_told(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            told = await lines.next()
            for generation in (told["generation"] + 5, told["generation"] + 4):
                text = orjson.dumps({**told, "generation": generation}).decode()
                await it.world.annotate(0, **{ASSIGNMENT_ANNOTATION: text})
                await asyncio.sleep(0.05)
            assert (await lines.next())["generation"] == told["generation"] + 5
            with pytest.raises(TimeoutError):
                await lines.raw(0.3)


# -- placements ------------------------------------------------------------------------------------


async def test_a_router_is_told_each_change_of_the_placements_and_no_other(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, PLACEMENTS, "router") as lines:
            told = await lines.next()
            while not told["placements"]:
                told = await lines.next()
            assert told["placements"] == [{"pod": f"{NS}/dispatcher-0", "vreplicas": 4}]
            labels = {"metadata": {"labels": {"x": "1"}}}
            await it.world.cluster.patch(VPODS, TENANT, "a", labels, patch_type=PatchType.MERGE)
            with pytest.raises(TimeoutError):
                await lines.raw(0.3)
            await it.world.set_vreplicas("a", 6)
            grown = await lines.next()
            assert grown["placements"] == [{"pod": f"{NS}/dispatcher-0", "vreplicas": 6}]
            assert grown["generation"] > told["generation"]


def test_the_end_of_a_pod_that_hands_over_wakes_the_routers():
    """While a hand-over goes on, its former pod is named. The status stays as it is."""
    pods = AdapterPodAssumeCache()
    woken: list[str] = []
    handoff = Handoff(mode=HandoffMode.OVERLAP)
    caches = SimpleNamespace(
        vpods=VPodAssumeCache(),
        pods=pods,
        pools={POOL: a_pool(handoff=handoff)},
        state=SimpleNamespace(pools={}),
    )
    streams = SimpleNamespace(changed=woken.append)
    rules = {"routable": None, "told_indexes": None, "seen_version": None}
    PlacementAnswers(caches, None, streams, **rules)  # type: ignore[arg-type]
    pod = a_pod(0, {VPOD: 1}, resource_version="1")
    pods.add(pod)
    woken.clear()
    pods.delete(pod)
    assert woken == [VPOD]


async def test_a_watch_waits_for_a_vpod_and_learns_that_it_is_gone_and_comes_again(tmp_path: Path):
    async with adapters(tmp_path, 0, vreplicas=1) as it:
        await it.told(0, 1)
        path = "/v1/placements/tenant/later?watch=true"
        async with watching(it, path, "router") as lines:
            generations = []

            async def placed(vreplicas: int) -> None:
                told = await lines.next()
                assert sum(one["vreplicas"] for one in told["placements"]) == vreplicas
                generations.append(told["generation"])

            await placed(0)
            for _ in range(2):
                await it.world.vpod("later", 3)
                await placed(3)
                await it.world.cluster.delete(VPODS, TENANT, "later")
                await placed(0)
            assert generations == sorted(set(generations))
            assert generations[0] > 0


# -- how a stream ends -----------------------------------------------------------------------------


async def test_a_stream_ends_with_its_pod(tmp_path: Path):
    async with adapters(tmp_path, 0, minPods=0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            await it.world.remove_pod(0)
            await lines.end()
        assert ended(it) == {"subject ended": 1}


async def test_a_stream_ends_if_the_ordinals_next_pod_is_there(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            await it.world.remove_pod(0)
            await it.world.pod(0, {VPOD: 4}, node="node-0")
            await lines.end()


async def test_a_stream_ends_if_its_pod_is_an_adapter_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            monkeypatch.setattr(type(it.service.caches.state), "counts", lambda *_: False)
            await it.world.annotate(0, other="1")
            await lines.end()


async def test_a_stream_ends_if_the_pool_loses_its_handoff(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            await it.world.patch_pool(handoff=None)
            await lines.end()


async def test_a_routers_stream_ends_if_its_account_is_taken_off_the_list(tmp_path: Path):
    async with adapters(tmp_path, 0) as it, watching(it, PLACEMENTS, "router") as lines:
        await lines.next()
        it.service.reconfigure(replace(Config(), adapters=AdaptersConfig()))
        while await lines.raw():
            pass


async def test_a_stream_ends_when_the_replica_stops(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            assert it.service.adapter_server is not None
            stopping = asyncio.create_task(it.service.adapter_server.stop())
            await lines.end()
            await asyncio.wait_for(stopping, SOON_S)
        assert ended(it) == {"stopping": 1}


async def test_a_replica_that_stops_begins_no_stream(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        assert it.service.adapter_server is not None
        it.service.adapter_server.streams["assignment"].stop()
        assert (await it.get(ASSIGNMENT, token(0)))[:2] == (503, "shutting down\n")


async def test_a_stream_ends_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "STREAM_MAX_S", 0.3)
    monkeypatch.setattr(streams, "KEEPALIVE_S", 0.05)
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            await lines.end()
        assert ended(it) == {"age": 1}


async def test_a_third_stream_of_a_pod_ends_its_oldest_and_no_other_pods(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        await it.told(0, 2)
        await it.told(1, 2)
        async with watching(it, ASSIGNMENT, token(1)) as other:
            await other.next()
            async with (
                watching(it, ASSIGNMENT, token(0)) as first,
                watching(it, ASSIGNMENT, token(0)) as second,
            ):
                for lines in (first, second):
                    await lines.next()
                async with watching(it, ASSIGNMENT, token(0)) as third:
                    await third.next()
                    await first.end()
                    assert ended(it) == {"too many of one owner": 1}
                    await it.world.set_vreplicas("a", 6)
                    for lines in (second, third, other):
                        assert (await lines.next())["shares"][VPOD]["vreplicas"] == 3
        assert OF_POD_MAX == 2


async def test_over_the_limit_of_all_streams_a_new_one_is_refused(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        assert it.service.adapter_server is not None
        it.service.adapter_server.streams["assignment"]._streams_max = 1
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            status, text, headers = await it.get(ASSIGNMENT, token(0))
            assert (status, headers["Retry-After"]) == (503, "5")
            assert "streams are open already" in text
            assert (await it.get("/v1/assignment", token(0)))[0] == 200


async def test_a_client_that_leaves_is_forgotten_at_once(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        async with watching(it, ASSIGNMENT, token(0)) as lines:
            await lines.next()
            assert it.metric("adapters_streams") == {'{kind="assignment"}': 1.0}
            lines.reply.close()
            await until(is_open(it, 0), timeout_s=SOON_S)
        assert ended(it) == {"client left": 1}


# -- slow readers, and what a stream costs ---------------------------------------------------------


async def raw_stream(it: Adapters, path: str, bearer: str) -> socket.socket:
    """A connection that has asked, and reads nothing by itself."""

    def connect() -> socket.socket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(("127.0.0.1", int(it.url.rpartition(":")[2])))
        secured = client_context(it.authority, None).wrap_socket(plain)
        head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {bearer}\r\n\r\n"
        secured.sendall(head.encode())
        return secured

    return await asyncio.to_thread(connect)


async def change(it: Adapters, generation: int, size_bytes: int) -> None:
    """Tell pod 0 something large."""
    share = {"vreplicas": 1, "weight": 1, "of": 1, "epoch": 1, "state": "Serve"}
    told = {
        **(await it.assignment(0)),
        "generation": generation,
        "shares": {f"tenant/{index:060}": share for index in range(size_bytes // 128)},
    }
    text = orjson.dumps(told).decode()
    pod = it.service.caches.pods.latest(f"{NS}/dispatcher-0")
    assert pod is not None
    version = str(int(pod.resource_version) + 1)
    it.service.caches.pods.update(replace(pod, assignment_text=text, resource_version=version))
    await asyncio.sleep(0)


async def test_a_slow_reader_misses_lines_and_gets_the_newest(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        await asyncio.sleep(0.1)
        reader = await raw_stream(it, ASSIGNMENT, token(0))
        await until(is_open(it, 1), timeout_s=SOON_S)
        for generation in range(100, 200):
            await change(it, generation, 32 * 1024)
            await asyncio.sleep(0.005)

        def read() -> list[int]:
            found, last, rest = [], 0, b""
            while last != 199:
                rest += reader.recv(65536)
                *whole, rest = rest.split(b"\n")
                for line in whole:
                    if line.startswith(b'{"generation":'):
                        last = int(line[len(b'{"generation":') :].partition(b",")[0])
                        found.append(last)
            return found

        generations = await asyncio.wait_for(asyncio.to_thread(read), 5)
        reader.close()
    assert generations == sorted(set(generations))
    assert len(generations) < 20, "of 101"


async def test_a_reader_that_takes_nothing_is_cut(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        await asyncio.sleep(0.1)
        assert it.service.adapter_server is not None
        http = it.service.adapter_server.listener.http
        assert http.limits.write_timeout_s == 5.0
        http.limits = replace(http.limits, write_timeout_s=0.2)
        reader = await raw_stream(it, ASSIGNMENT, token(0))
        await until(is_open(it, 1), timeout_s=SOON_S)
        for generation in range(100, 140):
            await change(it, generation, 32 * 1024)
            await asyncio.sleep(0.005)
        await until(is_open(it, 0), timeout_s=3)
        assert it.metric("adapters_connections_cut_total") == {'{reason="slow reader"}': 1.0}
        reader.close()


STREAMS = 100
STREAM_BYTES_MAX = 100 * 1024
"""Measured: 52 KiB, and 290 KiB with the buffer that asyncio keeps for reads."""


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_what_a_stream_costs_is_about_what_its_docstring_says(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        context = client_context(it.authority, None)

        async def more(count: int) -> list[socket.socket]:
            found = []
            for _ in range(count):
                path = f"/v1/placements/{VPOD}?watch=true"
                found.append(await asyncio.to_thread(plain_stream, it, path, context))
            await until(is_open(it, opened[0] + count, "placements"), timeout_s=5)
            opened[0] += count
            return found

        opened = [0]
        kept = await more(20)
        gc.collect()
        before = resident_bytes()
        kept += await more(STREAMS)
        gc.collect()
        each = (resident_bytes() - before) / STREAMS
        for one in kept:
            one.close()
        assert each < STREAM_BYTES_MAX, f"{each / 1024:.0f} KiB"


def plain_stream(it: Adapters, path: str, context: ssl.SSLContext) -> socket.socket:
    """The client's TLS is given up after the request, so that only the server's is measured."""
    secured = context.wrap_socket(
        socket.create_connection(("127.0.0.1", int(it.url.rpartition(":")[2])))
    )
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer router\r\n\r\n"
    secured.sendall(head.encode())
    return socket.socket(fileno=secured.detach())
