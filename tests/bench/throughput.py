"""``throughput``: pods a second that a real kube-scheduler binds, alone, with a no-op extender in
Go, and with the service.

Theory of operation. For each variant a StatefulSet's pods are there before kube-scheduler starts;
what is measured is from the first to the last binding as a watch shows them, while kubelets and
controllers stand still (``cluster.halted``). Extenders are registered by the shipped configuration,
only their URL is another; filter, prioritize and bind are theirs, also the no-op's: it writes the
Binding and nothing else. Variants take turns, each round begins with another one, and the median
counts, so that a machine that is busy for a while is so for all of them. kube-scheduler's own
client may send as much as the extenders' do: by its default of 50 requests a second it would be
measured against its limit where it binds pods itself.

``ours-narrow`` is the service with filter.narrowTo and the registration that goes with it, which
has no prioritize verb. ``plain`` pods belong to no pool: the service is asked about each, passes
every node and binds it as kube-scheduler would.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from extender.kube.api import PODS, Obj
from tests.bench.latency import cpu_seconds
from tests.bench.options import Options
from tests.bench.peers.build import noop_program
from tests.bench.real_cluster import CONTROLLERS, KUBELETS, Cluster, followed, running, stream
from tests.bench.result import Result, Value
from tests.bench.timing import median
from tests.e2e.objects import MANIFESTS, extender_at, load
from tests.e2e.processes import Probe, Process, free_port
from tests.e2e.replica import Replica

NONE: Final = "none"
GO: Final = "go"
OURS: Final = "ours"
NARROW: Final = "ours-narrow"
NARROW_TO: Final = 16
"""Nodes that filter passes."""
RUN_SECONDS_MAX: Final = 60.0
"""A run ends then with the pods that are bound, of which there must be ``PODS_MIN``: a slow machine
has a rate too.
"""
PODS_MIN: Final = 20


@dataclass(frozen=True)
class Variant:
    """``extender``: registered with kube-scheduler; ``adapters``: the pods are a pool's."""

    extender: str
    adapters: bool

    def described(self) -> dict[str, Value]:
        """For people."""
        return {"extender": self.extender, "pods": "adapters" if self.adapters else "plain"}


ALONE: Final = Variant(NONE, adapters=False)
WITH_GO: Final = Variant(GO, adapters=True)
WITH_OURS: Final = Variant(OURS, adapters=True)
WITH_NARROW: Final = Variant(NARROW, adapters=True)
PLAIN_WITH_OURS: Final = Variant(OURS, adapters=False)


@dataclass(frozen=True)
class Scale:
    """``nodes`` and ``pods`` of a run (counts); every variant runs ``rounds`` times."""

    nodes: int
    pods: int
    rounds: int
    variants: tuple[Variant, ...]


CLIENT: Final = {"qps": 1000, "burst": 2000}
"""kube-scheduler's, as the no-op's (``peers/noop``) and the service's."""

FULL: Final = Scale(1000, 1500, 4, (ALONE, WITH_GO, WITH_OURS, WITH_NARROW, PLAIN_WITH_OURS))
SHORT: Final = Scale(200, 300, 1, (WITH_GO, WITH_OURS, WITH_NARROW))


@dataclass(frozen=True)
class Run:
    """One run of a variant. ``extender_cpu_ms``: the extender's time on processors for each pod,
    None without one.
    """

    pods_per_second: float
    extender_cpu_ms: float | None


@dataclass
class Bindings:
    """What the watch of one run has shown: when each pod was bound, in seconds of the loop."""

    wanted: int
    at: dict[str, float] = field(default_factory=dict)

    all_bound: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, pod: Obj, now: float) -> None:
        """Note a version of a pod."""
        if pod.get("spec", {}).get("nodeName"):
            self.at.setdefault(pod["metadata"]["uid"], now)
            if len(self.at) >= self.wanted:
                self.all_bound.set()

    @property
    def pods_per_second(self) -> float:
        """From the first to the last; nan where they are one."""
        spent_s = max(self.at.values()) - min(self.at.values()) if self.at else 0.0
        return (len(self.at) - 1) / spent_s if spent_s else float("nan")


def bench(options: Options) -> Iterator[Result]:
    """A result for each variant, when the last round is over."""
    return stream(_measured(SHORT if options.short else FULL, noop_program()))


async def _measured(scale: Scale, noop: Path) -> AsyncGenerator[Result, None]:
    async with running() as cluster:
        await cluster.fill(scale.nodes)
        runs: dict[Variant, list[Run]] = {variant: [] for variant in scale.variants}
        with cluster.halted(KUBELETS):
            for turn in range(scale.rounds):
                first = turn % len(scale.variants)
                for variant in (*scale.variants[first:], *scale.variants[:first]):
                    runs[variant].append(await _run(cluster, variant, scale.pods, noop))
    rates = {variant: [run.pods_per_second for run in seen] for variant, seen in runs.items()}
    for variant, seen in runs.items():
        cpu_ms = [run.extender_cpu_ms for run in seen if run.extender_cpu_ms is not None]
        yield Result(
            "throughput",
            {**variant.described(), "nodes": scale.nodes, "podCount": scale.pods},
            {
                "podsPerSecond": median(rates[variant]),
                "lowestPodsPerSecond": min(rates[variant]),
                "highestPodsPerSecond": max(rates[variant]),
                "extenderCpuMs": median(cpu_ms) if cpu_ms else None,
                "toAloneRatio": _ratio(rates[variant], rates.get(ALONE)),
                "toGoRatio": _ratio(rates[variant], rates.get(WITH_GO)),
            },
        )


async def _run(cluster: Cluster, variant: Variant, pods: int, noop: Path) -> Run:
    extender, url = await _extender(cluster, variant, noop)
    namespace = await cluster.pool(pods, stamped=variant.adapters)
    config = configuration(
        url, "config-narrow.yaml" if variant.extender == NARROW else "config.yaml"
    )
    try:
        before = cpu_seconds(extender.pid) if extender is not None else None
        with cluster.halted(CONTROLLERS):
            bindings = await _bound(cluster, namespace, pods, config)
        after = cpu_seconds(extender.pid) if extender is not None else None
        if variant == PLAIN_WITH_OURS:
            asked = (await Replica(Path(), url).state())["requests"]
            assert asked["bind"] >= len(bindings.at), (
                f"the service bound some of {len(bindings.at)} pods only: {asked}"
            )
    finally:
        if extender is not None:
            await extender.kill()
    await cluster.drop(namespace)
    cpu_ms = None
    if before is not None and after is not None:
        cpu_ms = (after - before) * 1000 / len(bindings.at)
    return Run(bindings.pods_per_second, cpu_ms)


def configuration(url: str, name: str = "config.yaml") -> Obj:
    """The shipped KubeSchedulerConfiguration with its extender at ``url``, without any where that
    is empty.
    """
    (config,) = load(MANIFESTS / "kube-scheduler" / name)
    config["clientConnection"] |= CLIENT
    if url:
        return extender_at(config, url)
    del config["extenders"]
    return config


async def _bound(cluster: Cluster, namespace: str, pods: int, config: Obj) -> Bindings:
    loop = asyncio.get_running_loop()
    bindings = Bindings(pods)
    async with followed(cluster.api, PODS, namespace, lambda pod: bindings.see(pod, loop.time())):
        scheduler = await cluster.control_plane.start_scheduler(config)
        try:
            async with asyncio.timeout(RUN_SECONDS_MAX):
                await bindings.all_bound.wait()
        except TimeoutError:
            if len(bindings.at) < PODS_MIN:
                raise
        finally:
            await scheduler.kill()
    return bindings


async def _extender(cluster: Cluster, variant: Variant, noop: Path) -> tuple[Process | None, str]:
    """Started and ready to bind; its URL, "" for none."""
    if variant.extender == GO:
        port = free_port()
        arguments: list[str | Path] = [noop, f"-port={port}", f"-kubeconfig={cluster.kubeconfig}"]
        process = cluster.processes.start("noop-go", arguments)
        await process.ready(Probe(f"http://127.0.0.1:{port}/readyz"))
        return process, f"http://127.0.0.1:{port}"
    if variant.extender in (OURS, NARROW):
        await cluster.new_lease()
        process, url = await cluster.service(NARROW_TO if variant.extender == NARROW else 0)
        await Replica(Path(), url).leads()
        return process, url
    return None, ""


def _ratio(values: list[float], others: list[float] | None) -> float | None:
    return median(values) / median(others) if others else None
