"""``vreplica run`` and ``vreplica cluster``."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live

from extender.config.kube_scheduler_file import load_configuration
from extender.lab.demo.adapters import DemoAdapters, load_worker
from extender.lab.demo.local import LocalCluster, LocalSystem
from extender.lab.demo.story import Census, Story, Tell
from extender.lab.demo.view import View

REFRESH_PER_SECOND: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """``once``: end after the story. ``empty``: no story, only nodes. ``kubeconfig_out``: the file
    for a kubeconfig; "": none.

    ``show`` gets the figures at the end; None: show a live table.
    """

    once: bool = False
    empty: bool = False
    seed: int = 1
    kubeconfig_out: str = ""
    show: Callable[[dict[str, object]], None] | None = None


async def run_demo(options: DemoOptions) -> int:
    """Play the story, then keep everything running until cancelled. Raises OSError if the
    kubeconfig cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="vreplica-") as directory:
        worker = None if options.empty else load_worker()
        async with LocalSystem(
            seed=options.seed, directory=Path(directory), adapters=worker is not None
        ) as system:
            if options.kubeconfig_out:
                system.local.write_kubeconfig(Path(options.kubeconfig_out))
            census = Census()
            system.local.spawn(census.follow(system.local.cluster), "census")
            adapters = None
            if worker is not None and system.adapter_access is not None:
                adapters = DemoAdapters(worker, system.adapter_access)
                system.local.spawn(adapters.follow(system.local.cluster), "adapters")
            view = View(
                census,
                _urls(system),
                system.node_of,
                adapters.work if adapters is not None else None,
            )
            quiet = options.show is not None
            with contextlib.ExitStack() as stack:
                tell: Tell = view.tell
                if not quiet and sys.stdout.isatty():
                    stack.enter_context(
                        Live(view, refresh_per_second=REFRESH_PER_SECOND, screen=False)
                    )
                else:
                    tell = _printer(sys.stderr if quiet else sys.stdout)
                    for line in _urls(system):
                        tell(line)
                story = Story(system, census, tell, adapters)
                if options.empty:
                    await story.add_nodes()
                    tell("no pool and no vpods yet: apply yours; everything stays up until Ctrl-C")
                else:
                    await story.play()
                    if not options.once:
                        tell("the story is told; everything stays up until Ctrl-C")
                if not options.once:
                    await asyncio.get_running_loop().create_future()
            result = _result(system, census, story, adapters)
    if options.show is not None:
        options.show(result)
    else:
        Console().print(view)
    return 0


def _result(
    system: LocalSystem, census: Census, story: Story, adapters: DemoAdapters | None
) -> dict[str, object]:
    service = system.running
    worked: dict[str, object] = {}
    if adapters is not None:
        worked = {
            "vreplicasHandedOver": story.handed_over,
            "longestPauseSeconds": round(story.pause_s, 3),
            "piecesOfWork": adapters.work.done,
        }
    return {
        **worked,
        "nodes": len(census.nodes),
        "pods": len(census.pods),
        "vpods": len(census.vpods),
        "vreplicasWanted": census.wanted,
        "vreplicasPlaced": census.placed,
        "vreplicasUnserved": census.unserved,
        "overcommittedPods": len(census.overcommitted),
        "movedVReplicas": census.moved,
        "binds": service.verbs.binds,
        "bindErrors": service.verbs.bind_errors,
        "secondsToSettle": round(story.settled_s, 3),
        "requests": dict(service.server.requests),
    }


def _urls(system: LocalSystem) -> list[str]:
    service, access = system.running.server.url, system.adapter_access
    return [
        f"page     {service}/ui",
        f"state    {service}/state.json",
        f"metrics  {service}/metrics",
        *([f"adapters {access.url} (CA {access.ca_file})"] if access is not None else []),
        f"kubectl --kubeconfig {system.kubeconfig} get adapterpools,vpods -A",
    ]


def _printer(stream: TextIO) -> Tell:
    def tell(line: str) -> None:
        print(line, file=stream, flush=True)

    return tell


async def run_cluster(  # options of the command line
    *,
    host: str,
    port: int,
    kubeconfig_out: str | None,
    scheduler_configs: Sequence[bytes],
    seed: int,
    select_host: str,
) -> int:
    """Run only the cluster, until cancelled. ``scheduler_configs`` are documents. Raises
    InvalidConfiguration.
    """
    configs = [load_configuration(document) for document in scheduler_configs]
    async with LocalCluster(seed=seed, host=host, port=port, select_host=select_host) as local:
        for config in configs:
            local.start_scheduler(config)
        if kubeconfig_out:
            local.write_kubeconfig(Path(kubeconfig_out))
        print(f"embedded cluster on {local.server.url}", flush=True)
        while True:
            local.check()
            await asyncio.sleep(1.0)
