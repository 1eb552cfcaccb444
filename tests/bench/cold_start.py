"""``cold-start``: from the start of the service's process to /readyz 200, beside a process that
only reads the same lists.

Theory of operation. A real API server would need minutes to be filled with so many objects, so they
are served by the stand-in (``stand_in``), which has its answers ready: what is measured is our side
and the transport. The two take turns.
"""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import orjson

from tests.bench.latency import percentile
from tests.bench.options import Options
from tests.bench.peers.start import (
    PYTHON,
    Running,
    kubeconfig_for,
    launch_service,
    processes,
    start_stand_in,
)
from tests.bench.population import Pool, Population
from tests.bench.result import Result
from tests.e2e.processes import Process, Processes

LOOK_INTERVAL_S: Final = 0.02
TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class Scale:
    """Counts; every side starts ``rounds`` times."""

    nodes: int
    pods: int
    vpods: int
    rounds: int


FULL: Final = Scale(1000, 10_000, 20_000, 3)
SHORT: Final = Scale(100, 1000, 2000, 2)


def bench(options: Options) -> Iterator[Result]:
    """One result."""
    scale = SHORT if options.short else FULL
    ours, raw = [], []
    with processes() as programs:
        population = Population(scale.nodes, (Pool("dispatcher", scale.pods, 0, scale.vpods),))
        api = start_stand_in(programs, population)
        for _ in range(scale.rounds):
            ours.append(_until_ready(programs, api))
            raw.append(_until_read(programs, api))
        writes = orjson.loads(_get(f"{api.url}/writes"))
    yield Result(
        "cold-start",
        {"api": "stand-in", "nodes": scale.nodes, "pods": scale.pods, "vpods": scale.vpods},
        {
            "readySeconds": percentile(ours, 50),
            "slowestReadySeconds": max(ours),
            "rawListsSeconds": percentile(raw, 50),
            "toRawListsRatio": percentile(ours, 50) / percentile(raw, 50),
            "writes": sum(writes.values()),
        },
    )


def _until_ready(programs: Processes, api: Running) -> float:
    started = time.monotonic()
    service = launch_service(programs, api)
    while not _get(f"{service.url}/readyz"):
        _still_wanted(service.process, started)
        time.sleep(LOOK_INTERVAL_S)
    took_s = time.monotonic() - started
    asyncio.run(service.process.kill())
    return took_s


def _until_read(programs: Processes, api: Running) -> float:
    kubeconfig = kubeconfig_for(programs, api)
    started = time.monotonic()
    process = programs.start(
        "raw-lists", [PYTHON, "-m", "tests.bench.peers.raw_lists", "--kubeconfig", kubeconfig]
    )
    while process.returncode is None:
        _still_wanted(None, started)
        time.sleep(LOOK_INTERVAL_S)
    assert process.returncode == 0, process.log_tail()
    programs.forget(process)
    return time.monotonic() - started


def _still_wanted(process: Process | None, started: float) -> None:
    if process is not None and process.returncode is not None:
        raise AssertionError(f"ended with {process.returncode}:\n{process.log_tail()}")
    if time.monotonic() > started + TIMEOUT_S:
        raise TimeoutError(f"not done after {TIMEOUT_S:g} s")


def _get(url: str) -> bytes:
    """The body of a 200, else nothing."""
    try:
        with urllib.request.urlopen(url, timeout=5.0) as reply:
            body: bytes = reply.read()
            return body
    except (urllib.error.URLError, OSError):
        return b""
