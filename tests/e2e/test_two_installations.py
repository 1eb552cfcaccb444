"""Two installations of the chart in one cluster, each with its namespaces of pools, on the real
control plane: two services with the rights of their own ServiceAccounts, two kube-schedulers, and
the admission policies of both in force.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.kube.api import EVENTS, PODS, VPODS, ListOptions, PatchType
from extender.kube.serving.sockets import host_port
from extender.model.decode import pod_from, vpod_from
from extender.model.ledger import ledger_slots
from extender.model.names import API_VERSION, PLACEMENTS_ANNOTATION
from extender.model.objects import VPod
from tests.e2e.guarded import NO_WEBHOOK
from tests.e2e.objects import extender_at, stateful_set, write_json
from tests.e2e.processes import Process, free_port, start_service
from tests.e2e.raw import RawHttp
from tests.e2e.real import RealBackend
from tests.e2e.replica import Replica
from tests.e2e.scenario import LOOPBACK, QUICK_ELECTION, adapter_pool, is_placed
from tests.e2e.waiting import NotYet, eventually
from tests.manifests.chart import Values, objects, render

pytestmark = [
    pytest.mark.usefixtures("_helm_and_kubectl"),
    pytest.mark.long,
]

SHARED: Final[Values] = {"crds": {"install": False}}
"""What the second installation leaves to the first."""


@dataclass
class Installation:
    """One of the two. ``name``: of its scheduler, its pool and the pool's StatefulSet."""

    real: RealBackend
    name: str
    system: str
    pools: str
    """The namespace whose pools it serves."""
    replica: Replica
    process: Process | None = None

    @property
    def account(self) -> str:
        return f"{self.system}/{self.name}"

    async def start(self) -> None:
        self.process = await start_service(
            self.real.processes, self.replica.config, url=self.replica.url
        )
        self.replica.process = self.process
        await self.replica.leads()

    async def vpod(self, tenant: str, name: str, vreplicas: int) -> None:
        spec = {"poolRef": {"namespace": self.pools, "name": self.name}, "vreplicas": vreplicas}
        metadata = {"name": name, "namespace": tenant}
        obj = {"apiVersion": API_VERSION, "kind": "VPod", "metadata": metadata, "spec": spec}
        await self.real.api.create(VPODS, tenant, obj)

    async def slots_used(self) -> int:
        """The slots in all ledgers of the pool's pods."""
        page = await self.real.api.list_page(PODS, ListOptions(namespace=self.pools))
        return sum(ledger_slots(pod_from(obj).ledger) for obj in page.items)


async def installed(
    real: RealBackend, directory: Path, name: str, more: Values, *, also: str = ""
) -> Installation:
    """The chart's objects under a name of their own, and the pool with no pods yet. ``also``: a
    namespace that it serves besides its own.
    """
    system, pools = await real.namespace(f"{name}-system"), await real.namespace(f"{name}-adapters")
    values: dict[str, Any] = {
        "config": {
            "pools": {"namespaces": [pools, also] if also else [pools]},
            "leaderElection": dict(QUICK_ELECTION),
        },
        "fullnameOverride": name,
        "networkPolicy": {"enabled": False},
        **more,
    }
    applied = await real.apply(objects(render(values, namespace=system)), NO_WEBHOOK)
    files = {
        file: yaml.safe_load(text)
        for obj in applied
        if obj["kind"] == "ConfigMap"
        for file, text in obj["data"].items()
        if file.endswith(".yaml")
    }
    port = free_port()
    url = f"http://{host_port(LOOPBACK, port)}"
    config = files["service-config.yaml"]
    config["server"] |= {"port": port, "healthPort": free_port()}
    token = await real.token_for(f"{system}/{name}")
    config["clientConnection"]["kubeconfig"] = str(token)
    replica = Replica(write_json(directory / f"{name}.json", config), url)
    await real.start_scheduler(extender_at(files["config.yaml"], url))
    workload = stateful_set(pools, name, 0, pool=name)
    workload["spec"]["template"]["spec"]["schedulerName"] = name  # no webhook runs here
    await real.apply([adapter_pool(pools, name), workload])
    return Installation(real, name, system, pools, replica)


@asynccontextmanager
async def two_installations(
    real: RealBackend, directory: Path
) -> AsyncIterator[tuple[Installation, Installation]]:
    await real.add_nodes(3)
    one = await installed(real, directory, "one", {})
    two = await installed(real, directory, "two", SHARED)
    await asyncio.gather(one.start(), two.start())
    yield one, two


async def placed(real: RealBackend, tenant: str, *names: str) -> dict[str, VPod]:
    async def look() -> dict[str, VPod]:
        found = [vpod_from(await real.api.get(VPODS, tenant, name)) for name in names]
        if waiting := [vpod.name for vpod in found if not is_placed(vpod)]:
            raise NotYet(f"not placed: {waiting}")
        return {vpod.name: vpod for vpod in found}

    return await eventually(look, 60.0, f"{', '.join(names)} are placed")


async def told_about(real: RealBackend, tenant: str, name: str) -> list[str]:
    page = await real.api.list_page(EVENTS, ListOptions(namespace=tenant))
    return [str(event["reason"]) for event in page.items if event["regarding"]["name"] == name]


async def test_each_installation_places_its_own_pools_through_its_own_scheduler(
    real: RealBackend, tmp_path: Path
):
    async with two_installations(real, tmp_path) as (one, two):
        tenant = await real.namespace("tenant")
        for index in range(3):
            await one.vpod(tenant, f"one-{index}", 9)
            await two.vpod(tenant, f"two-{index}", 11)
        names = [f"{each}-{index}" for each in ("one", "two") for index in range(3)]
        vpods = await placed(real, tenant, *names)
        for name, vpod in vpods.items():
            pool = name.partition("-")[0]
            assert {pod.rpartition("-")[0] for pod in vpod.placements} == {pool}
        assert (await one.slots_used(), await two.slots_used()) == (27, 33)
        for each in (one, two):
            known = [pool["name"] for pool in (await each.replica.state())["pools"]]
            assert known == [f"{each.pools}/{each.name}"]


async def test_without_the_other_installation_its_vpods_wait_and_nobody_says_a_word(
    real: RealBackend, tmp_path: Path
):
    async with two_installations(real, tmp_path) as (one, two):
        tenant = await real.namespace("tenant")
        await two.vpod(tenant, "theirs", 5)
        await placed(real, tenant, "theirs")
        assert two.process is not None
        await two.process.kill()
        await two.vpod(tenant, "waits", 5)
        await one.vpod(tenant, "ours", 5)
        await placed(real, tenant, "ours")
        await asyncio.sleep(3)
        assert "status" not in await real.api.get(VPODS, tenant, "waits")
        assert not await told_about(real, tenant, "waits")
        await two.start()
        await placed(real, tenant, "waits", "theirs")


async def test_neither_account_may_write_for_the_pools_of_the_other(
    real: RealBackend, tmp_path: Path
):
    async with two_installations(real, tmp_path) as (one, two):
        tenant = await real.namespace("tenant")
        await two.vpod(tenant, "theirs", 5)
        await placed(real, tenant, "theirs")
        forged = {"metadata": {"annotations": {PLACEMENTS_ANNOTATION: "{}"}}}
        status = {"status": {"scheduledVReplicas": 0}}
        scale = {"spec": {"replicas": 0}}
        vreplica = f"/apis/{API_VERSION}/namespaces"
        async with RawHttp(await real.token_for(one.account)) as account:
            for url, body in (
                (f"/api/v1/namespaces/{two.pools}/pods/two-0", forged),
                (f"{vreplica}/{two.pools}/adapterpools/two/status", status),
                (f"{vreplica}/{tenant}/vpods/theirs/status", status),
            ):
                answer = await account.request(
                    "PATCH", url, body, content_type="application/merge-patch+json"
                )
                assert (answer.status, "ValidatingAdmissionPolicy" in answer.message) == (
                    403,
                    True,
                ), f"{url}: {answer.status} {answer.message}"
            url = f"/apis/apps/v1/namespaces/{two.pools}/statefulsets/two/scale"
            scale |= (await account.get(url)).body | scale
            answer = await account.request("PUT", url, scale)
            assert answer.status == 403, answer.message
            assert "pools.namespaces" in answer.message
        assert await two.slots_used() == 5


async def test_a_vpod_moves_to_a_pool_of_the_other_installation(real: RealBackend, tmp_path: Path):
    async with two_installations(real, tmp_path) as (one, two):
        tenant = await real.namespace("tenant")
        await one.vpod(tenant, "moves", 5)
        await placed(real, tenant, "moves")
        pool = {"spec": {"poolRef": {"namespace": two.pools, "name": two.name}}}
        await real.api.patch(VPODS, tenant, "moves", pool, patch_type=PatchType.MERGE)

        async def moved() -> bool:
            used = await one.slots_used(), await two.slots_used()
            if used != (0, 5):
                raise NotYet(f"slots used: {used}")
            return True

        await eventually(moved, 60.0, "the vpod's slots are in the other pool")
        vpod = (await placed(real, tenant, "moves"))["moves"]
        assert {pod.rpartition("-")[0] for pod in vpod.placements} == {"two"}


async def test_two_that_serve_one_pool_are_refused_each_others_writes(
    real: RealBackend, tmp_path: Path
):
    await real.add_nodes(3)
    one = await installed(real, tmp_path, "one", {})
    two = await installed(real, tmp_path, "two", SHARED, also=one.pools)
    await asyncio.gather(one.start(), two.start())
    tenant = await real.namespace("tenant")
    await one.vpod(tenant, "wanted-by-both", 5)

    async def told() -> list[str]:
        reasons = await told_about(real, tenant, "wanted-by-both")
        if "WriteRefused" not in reasons:
            raise NotYet(f"events: {reasons}")
        return reasons

    await eventually(told, 30.0, "an event tells of the refused writes")
    await two.vpod(tenant, "of-two-alone", 5)
    await placed(real, tenant, "of-two-alone")
