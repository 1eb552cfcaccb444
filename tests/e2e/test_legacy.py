"""kube-scheduler 1.22 with the v1 Policy file: the extender of all versions (the embedded cluster
reads the same file).
"""

from pathlib import Path

from extender.kube.api import PODS
from tests.e2e.backend import Backend
from tests.e2e.scenario import POOL, Setup, System


async def test_a_scheduler_of_1_22_binds_adapter_pods_through_the_policy_file(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, Setup(legacy=True)) as system:
        await backend.add_nodes(3)
        namespace = await system.pool()
        await system.vpods(10, 8)
        before = await system.settled(pods=4)
        assert {adapter.scheduler_name for adapter in before} == {"default-scheduler"}
        requests = await system.requests()
        assert requests["bind"] >= 4
        assert requests["filter"] >= 4
        await backend.api.delete(PODS, namespace, f"{POOL}-1")
        await system.came_back(before[1])
        after = await system.settled(pods=4)
        assert [adapter.ledger for adapter in after] == [adapter.ledger for adapter in before]
