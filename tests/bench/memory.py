"""``memory``: what a replica of the service weighs on a full cluster, and how late its event loop
gets under load.

The service runs in a process of its own (``held_service``) against an API server stub in this one
(``api_stub``), over HTTP: its real client lists and watches, decodes and caches everything, and its
leader's loops run. It watches the pods that have the pool's label and no others, so of 50,000 pods
it sees the 10,000 adapters. Peers are the same process before it has listed anything (``bare``: the
interpreter with the same imports), and its loop before the load (``idle``).

The load: so many updates a second by the watches, half of pods and half of vpods, which change
versions and nothing else, as heartbeats do; and filter calls over a kept connection, each about all
nodes.
"""

import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import uvloop

from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND
from tests.bench import objects
from tests.bench.api_stub import ApiStub
from tests.bench.clusters import VPODS_PER_POD, raw_cluster
from tests.bench.http_client import Connection, request
from tests.bench.options import Options
from tests.bench.result import Result
from tests.bench.timing import percentile

ADAPTERS, ADAPTERS_SHORT = 10_000, 1_000
OTHER_PODS_PER_ADAPTER: Final = 4
UPDATES_PER_SECOND: Final = 1_000
FILTERS_PER_SECOND: Final = 10
TICKS_PER_SECOND: Final = 50
IDLE_S: Final = 2.0
LOAD_S, LOAD_SHORT_S = 10.0, 3.0


@dataclass(frozen=True, slots=True)
class Held:
    """A running ``held_service``."""

    process: asyncio.subprocess.Process

    async def ask(self, command: str) -> dict[str, Any]:
        """Its answer to a command. Raises AssertionError where it has ended."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\n".encode())
        line = await stdout.readline()
        if not line:
            raise AssertionError(f"the service has ended with {await self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def bench(options: Options) -> Iterator[Result]:
    """Two lines: memory and lateness."""
    adapters = ADAPTERS_SHORT if options.short else ADAPTERS
    yield from uvloop.run(measured(adapters, LOAD_SHORT_S if options.short else LOAD_S))


async def measured(adapters: int, load_s: float, idle_s: float = IDLE_S) -> list[Result]:
    """Fill a service with a cluster of so many adapters, then load it for ``load_s``."""
    stub, waiting = stub_of(adapters)
    nodes = [node["metadata"]["name"] for node in stub.lists["nodes"]]
    case = {
        "nodes": len(nodes),
        "pods": adapters * (OTHER_PODS_PER_ADAPTER + 1),
        "adapterPods": adapters,
        "vpods": adapters * VPODS_PER_POD,
    }
    async with stub.serving() as url, held(url) as service:
        filled = await service.ask("settle")
        await service.ask("probe")
        await asyncio.sleep(idle_s)
        idle = await service.ask("report")
        await service.ask("probe")
        body = orjson.dumps({"Pod": waiting, "Nodes": None, "NodeNames": nodes})
        updates, waits_s = await load(stub, filled["url"], body, load_s)
        loaded = await service.ask("report")
    memory = Result(
        "memory",
        case,
        {
            "cachedPods": filled["cached"]["pods"],
            "cachedVpods": filled["cached"]["vpods"],
            "bareMebibytes": round(filled["bareMebibytes"], 1),
            "settledMebibytes": round(filled["rssMebibytes"], 1),
            "peakMebibytes": round(filled["peakMebibytes"], 1),
            "peakAfterLoadMebibytes": round(loaded["peakMebibytes"], 1),
            "bareRatio": round(filled["peakMebibytes"] / filled["bareMebibytes"], 2),
            "settledSeconds": round(filled["settledSeconds"], 2),
            "writes": sum(stub.writes.values()),
        },
    )
    lateness = Result(
        "memory",
        {**case, "updatesPerSecond": UPDATES_PER_SECOND, "filtersPerSecond": FILTERS_PER_SECOND},
        {
            "sentUpdatesPerSecond": round(updates / load_s, 1),
            "filters": len(waits_s),
            "filterP50Milliseconds": round(percentile(waits_s, 50) * 1e3, 2),
            "filterP99Milliseconds": round(percentile(waits_s, 99) * 1e3, 2),
            "idleLagP99Milliseconds": round(idle["lateP99Seconds"] * 1e3, 2),
            "lagP99Milliseconds": round(loaded["lateP99Seconds"] * 1e3, 2),
            "lagMaxMilliseconds": round(loaded["lateMaxSeconds"] * 1e3, 2),
            "idleCpuPercent": round(idle["cpuPercent"], 1),
            "cpuPercent": round(loaded["cpuPercent"], 1),
        },
    )
    return [memory, lateness]


def stub_of(adapters: int) -> tuple[ApiStub, dict[str, Any]]:
    """The cluster, all of whose vpods are placed, and one more adapter pod in it that waits for a
    node.
    """
    raw = raw_cluster(adapters, placed=adapters * VPODS_PER_POD)
    waiting = objects.pod(adapters, "")
    lists = {
        "nodes": raw.nodes,
        "namespaces": raw.namespaces,
        "statefulsets": [objects.stateful_set(adapters + 1)],
        # The pool stays as large as it is: what is measured is not its shrinking.
        "adapterpools": [objects.pool("default", minPods=adapters + 1)],
        "pods": [*raw.pods, waiting],
        "vpods": raw.vpods,
    }
    return ApiStub(lists, other_pods=adapters * OTHER_PODS_PER_ADAPTER), waiting


@asynccontextmanager
async def held(api_url: str) -> AsyncIterator[Held]:
    """A service of that API server, in a process of its own, ended in the end."""
    with tempfile.TemporaryDirectory() as directory:
        config = written_config(Path(directory), api_url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.held_service", str(config)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Held(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def written_config(directory: Path, api_url: str) -> Path:
    """The service's configuration file, and a kubeconfig beside it."""
    kubeconfig, config = directory / "kubeconfig", directory / "config.yaml"
    kubeconfig.write_text(json.dumps(kubeconfig_of(api_url)))
    document = {
        "apiVersion": CONFIG_API_VERSION,
        "kind": CONFIG_KIND,
        "server": {"port": 0},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
    }
    config.write_text(json.dumps(document))
    return config


def kubeconfig_of(url: str) -> dict[str, object]:
    """Of an API server that asks nobody who they are."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stub", "cluster": {"server": url}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "nobody"}}],
        "current-context": "stub",
    }


async def load(stub: ApiStub, url: str, body: bytes, load_s: float) -> tuple[int, list[float]]:
    """Updates that were sent, and how long each filter call took, seconds."""
    waits_s: list[float] = []
    end = time.perf_counter() + load_s
    connection = await Connection.open(urlsplit(url).port or 0)

    async def filter_on() -> None:
        message = request("/v1/filter", body)
        while (started := time.perf_counter()) < end:
            answer = orjson.loads(await connection.post(message))
            waits_s.append(time.perf_counter() - started)
            if answer["Error"] or not answer["NodeNames"]:
                raise AssertionError(f"filter: {answer}")
            await asyncio.sleep(max(0.0, started + 1 / FILTERS_PER_SECOND - time.perf_counter()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(filter_on())
        updating = tasks.create_task(_update(stub, end))
    connection.close()
    return updating.result(), waits_s


async def _update(stub: ApiStub, end: float) -> int:
    each = UPDATES_PER_SECOND // TICKS_PER_SECOND // 2
    next_pods, next_vpods = (itertools.cycle(stub.lists[plural]) for plural in ("pods", "vpods"))
    sent, due = 0, time.perf_counter()
    while due < end:
        stub.tell("pods", [*itertools.islice(next_pods, each)])
        stub.tell("vpods", [*itertools.islice(next_vpods, each)])
        sent += 2 * each
        due += 1 / TICKS_PER_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return sent
