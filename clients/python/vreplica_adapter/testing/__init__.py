"""An environment for tests of adapters: ``FakeScheduler`` plays vreplica-scheduler in this process,
on a local port.

    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        async with pod.adapter(on_serve=serve) as adapter:
            pod.assign("team-a/orders", vreplicas=2)
            await pod.serving("team-a/orders")
"""

from vreplica_adapter.testing.pod import QUICK, FakePod
from vreplica_adapter.testing.scheduler import FakeScheduler

__all__ = ["QUICK", "FakePod", "FakeScheduler"]
