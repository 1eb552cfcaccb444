"""The process whose memory and event loop ``memory`` measures: ``python -m tests.bench.held_service
CONFIG``.

It is the shipped service, put together as ``extender.service.app.serve`` does, on uvloop. Beside it
runs only a probe of the loop: a timer that says how much too late it was called. It reads commands
on its standard input, and answers each by a line of JSON: ``settle`` once everything is listed and
nothing waits to be placed, ``probe`` at once, ``report`` with the probe's lateness since then. It
ends with its input.
"""

import asyncio
import json
import random
import resource
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from extender.config.profiles import load_profiles
from extender.kube.client import KubeApi
from extender.service.app import Service
from tests.bench.timing import percentile
from tests.support.configs import load_config

PROBE_PERIOD_S: Final = 0.005
LOOK_PERIOD_S: Final = 0.1


def resident_mib() -> float:
    """Resident memory now, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak_mib() -> float:
    """The most it has been, MiB; not from getrusage, which counts what the parent had before the
    exec.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**10


class Probe:
    """Lateness of a timer, seconds; the clock is not the loop's, whose steps are of 1 ms."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Measure from now on."""
        self.late_s: list[float] = []
        self._began_s = (time.process_time(), time.perf_counter())

    def report(self) -> dict[str, object]:
        """Lateness, and what part of a core the process has used."""
        cpu_s, wall_s = (
            time.process_time() - self._began_s[0],
            time.perf_counter() - self._began_s[1],
        )
        return {
            "lateP99Seconds": percentile(self.late_s, 99),
            "lateMaxSeconds": max(self.late_s, default=0.0),
            "cpuPercent": 100 * cpu_s / wall_s,
        }

    async def run(self) -> None:
        """For ever."""
        while True:
            due = time.perf_counter() + PROBE_PERIOD_S
            await asyncio.sleep(PROBE_PERIOD_S)
            self.late_s.append(max(0.0, time.perf_counter() - due))


async def settled(service: Service) -> None:
    """Wait until everything is listed and decided."""
    await service.informers.wait_synced()
    # The service tells nobody that it is at rest.
    while any(service.placer.queues.sizes().values()) or not service.placer.history:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_PERIOD_S)


async def hold(config_file: str) -> None:
    """Run the service until there are no more commands."""
    bare_mib = resident_mib()
    config, started = load_config(config_file), time.perf_counter()
    async with await KubeApi.connect(kubeconfig=config.client_connection.kubeconfig) as api:
        profiles = load_profiles(config, config_file)
        service = Service(api, config, now=time.time, rng=random.Random(1), profiles=profiles)
        probe = Probe()
        tasks = [asyncio.create_task(service.run()), asyncio.create_task(probe.run())]
        while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
            answer: dict[str, object] = {}
            if command == "settle":
                await settled(service)
                answer = {
                    "url": service.server.url,
                    "settledSeconds": time.perf_counter() - started,
                }
            elif command == "probe":
                probe.begin()
            elif command == "report":
                answer = probe.report()
            memory = {
                "bareMebibytes": bare_mib,
                "rssMebibytes": resident_mib(),
                "peakMebibytes": peak_mib(),
            }
            sys.stdout.write(json.dumps({**answer, **memory, "cached": _cached(service)}) + "\n")
            sys.stdout.flush()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _cached(service: Service) -> dict[str, int]:
    caches = service.caches
    return {"nodes": len(caches.nodes), "pods": len(caches.pods), "vpods": len(caches.vpods)}


if __name__ == "__main__":
    uvloop.run(hold(sys.argv[1]))
