"""Every family of metrics that our programs can export: of a service in shadow mode, and of a
webhook, as processes.
"""

import asyncio
import random
from collections import Counter
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from extender.config.model import AdaptersConfig, Config, LeaderElectionConfig, Mode, ScheduleConfig
from extender.config.profiles import WatchedContent
from extender.kube.api import Api
from extender.kube.budget import Budget
from extender.kube.reflector import Reflector
from extender.service.app import Service
from extender.service.http.process_metrics import LoopLag, watch_client
from extender.service.reloading import Reloading, Watched
from extender.telemetry.exposition import Family
from tests.kube.fakes import wall
from tests.support.service import World
from webhook.caches import WebhookCaches
from webhook.metrics import Metrics as WebhookMetrics

PROCESS = frozenset(
    {
        "process_cpu_seconds",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
        "python_gc_collections",
        "python_gc_objects_collected",
        "python_gc_objects_uncollectable",
    }
)
"""What prometheus_client adds about the process and its collector, without ``_total``."""


def a_client() -> Any:
    """As much of the real client as is watched."""
    return SimpleNamespace(
        budget=Budget(1000.0, 2000), requests=Counter(), observe_latency=lambda _observe: None
    )


def watched(service: Service) -> Service:
    """With all that a process of its own adds."""
    service.metrics.add_process()
    watch_client(service.metrics, a_client())
    LoopLag(service.metrics)
    first = WatchedContent(Config(), ("config.yaml",))
    Reloading(Watched(first, lambda: first), apply=(), metrics=service.metrics)
    return service


async def all_families() -> list[Family]:
    """By name. Needs a running loop."""
    world = await World.create()
    config = Config(
        schedule=ScheduleConfig(port=1),
        adapters=AdaptersConfig(port=1),
        leader_election=LeaderElectionConfig(leader_elect=True),
        mode=Mode.SHADOW,
    )
    service = Service(world.api, config, now=wall, rng=random.Random(1), serve=False)
    return watched(service).metrics.families


@cache
def families() -> list[Family]:
    """The same, for tests without a loop."""
    return asyncio.run(all_families())


def webhook_families() -> list[Family]:
    """Of the webhook as a process of its own."""
    caches = WebhookCaches()
    metrics = WebhookMetrics(caches)
    metrics.add_process()
    metrics.add_upkeep(dict, lambda: 0)
    api, rng = cast("Api", None), random.Random(1)
    metrics.add_reflectors(
        [Reflector(api, resource, sink, rng=rng) for resource, sink in caches.sinks.items()]
    )
    return metrics.families
