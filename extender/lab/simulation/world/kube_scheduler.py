"""The two kube-schedulers of a simulated world, the shipped one and the cluster's own, and the
connection of the first to the extender: a Service of all ready replicas.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from extender.config.kube_scheduler import ProfileConfig, SchedulerConfig
from extender.config.kube_scheduler_file import load_configuration
from extender.lab.faults import Answer
from extender.lab.scheduler.extender_transport import TransportError
from extender.lab.simulation.world.replica import Replica
from extender.shipped import manifests_dir


@cache
def scheduler_config() -> SchedulerConfig:
    """Return the shipped configuration."""
    return load_configuration((manifests_dir() / "kube-scheduler" / "config.yaml").read_bytes())


CLUSTERS_OWN: Final = SchedulerConfig(profiles=(ProfileConfig(),))
"""The configuration of the cluster's own kube-scheduler. It binds pods that bypassed the webhook,
and calls no extender.
"""


class ExtenderService:
    """A ``Transport`` that sends each call to a ready replica."""

    def __init__(
        self,
        replicas: Callable[[], Sequence[Replica]],
        rng: random.Random,
        trace: Callable[[str], None],
    ) -> None:
        self._replicas = replicas
        self._rng = rng
        self._trace = trace

    async def __call__(self, url: str, body: bytes, timeout_s: float) -> Answer:
        """Send a POST. Raises TransportError."""
        ready = [replica for replica in self._replicas() if replica.ready]
        if not ready:
            raise TransportError("dial tcp 127.0.0.1:10261: connect: connection refused")
        replica = self._rng.choice(ready)
        verb = urlsplit(url).path.rpartition("/")[2]
        try:
            status, reply = await replica.answer(verb, body, timeout_s)
        except TransportError as error:
            self._trace(f"{verb} at {replica.name}: {error}")
            raise
        self._trace(f"{verb} at {replica.name}: {status} {hashlib.sha256(reply).hexdigest()[:8]}")
        return status, reply
