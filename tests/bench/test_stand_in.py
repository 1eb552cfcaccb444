"""The stand-in API server: enough of one that the service's own client can use it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from extender.kube.api import ADAPTERPOOLS, NODES, PODS, VPODS, Binding, NotFound, PatchType
from extender.kube.client import KubeApi
from extender.model.names import PLACEMENTS_ANNOTATION
from tests.bench.population import NAMESPACE, Pool, Population
from tests.bench.stand_in import StandIn
from tests.e2e.objects import write_json


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[KubeApi]:
    stand_in = StandIn(Population(600, (Pool("dispatcher", bound=3, pending=1, vpods=4),)))
    runner = web.AppRunner(stand_in.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    client = await KubeApi.connect(kubeconfig=str(write_json(tmp_path / "kubeconfig", config)))
    yield client
    await client.close()
    await runner.cleanup()


async def test_lists_come_in_pages(api):
    first = await api.list_page(NODES)
    second = await api.list_page(NODES, continue_token=first.continue_token)
    assert (len(first.items), len(second.items), second.continue_token) == (500, 100, "")


async def test_a_bind_is_stored_and_the_watches_are_told(api):
    version = (await api.list_page(PODS)).resource_version
    watch = api.watch(PODS, resource_version=version)
    event = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.05)
    await api.bind(
        Binding(
            NAMESPACE,
            "dispatcher-3",
            "node-0001",
            uid="",
            annotations={PLACEMENTS_ANNOTATION: "{}"},
        )
    )
    told = (await event).object
    stored = await api.get(PODS, NAMESPACE, "dispatcher-3")
    assert told["metadata"] == stored["metadata"]
    assert stored["spec"]["nodeName"] == "node-0001"
    assert stored["metadata"]["annotations"][PLACEMENTS_ANNOTATION] == "{}"
    assert int(stored["metadata"]["resourceVersion"]) > int(version)
    await watch.aclose()


async def test_a_merge_patch_of_a_status_is_stored_and_shows_in_the_next_list(api):
    before = (await api.list_page(VPODS)).items[0]["metadata"]
    await api.patch(
        VPODS,
        before["namespace"],
        before["name"],
        {"status": {"scheduledVReplicas": 5}},
        patch_type=PatchType.MERGE,
        subresource="status",
    )
    assert (await api.list_page(VPODS)).items[0]["status"]["scheduledVReplicas"] == 5


async def test_what_is_not_there_is_not_found(api):
    with pytest.raises(NotFound):
        await api.get(ADAPTERPOOLS, NAMESPACE, "nobody")
