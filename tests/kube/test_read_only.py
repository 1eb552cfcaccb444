"""Shadow mode's API: it reads like the real one, and nothing gets through to be written."""

import asyncio

import pytest

from extender.kube.api import EVENTS, NODES, PODS, VPODS, Binding, Forbidden, ListOptions, PatchType
from extender.kube.read_only import ReadOnlyApi, WriteRefused
from tests.support.builders import NS
from tests.support.service import World, a_world

pytestmark = pytest.mark.looptime

WRITES = {
    "create": lambda api: api.create(EVENTS, NS, {"metadata": {"name": "e"}}),
    "update": lambda api: api.update(VPODS, "tenant", "a", {}, subresource="status"),
    "patch": lambda api: api.patch(PODS, NS, "dispatcher-0", {}, patch_type=PatchType.MERGE),
    "delete": lambda api: api.delete(PODS, NS, "dispatcher-0", grace_period_s=0),
    "bind": lambda api: api.bind(Binding(NS, "dispatcher-0", "node-0")),
}


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_is_refused_and_counted_and_nothing_is_sent(verb: str):
    world = await World.create()
    api = ReadOnlyApi(world.api)
    before = len(world.api.calls)
    with pytest.raises(WriteRefused, match="shadow mode writes nothing") as refused:
        await WRITES[verb](api)
    assert isinstance(refused.value, Forbidden), (
        "whoever handles a refusal by RBAC handles this one"
    )
    assert api.refused == {verb: 1}
    assert len(world.api.calls) == before


async def test_a_refusal_names_the_verb_and_the_object():
    api = ReadOnlyApi((await World.create()).api)
    for verb, named in {
        "create": f"create of events {NS}/e",
        "update": "update of vpods/status tenant/a",
        "patch": f"patch of pods {NS}/dispatcher-0",
        "bind": f"bind of pod {NS}/dispatcher-0",
    }.items():
        with pytest.raises(WriteRefused, match=named):
            await WRITES[verb](api)


async def test_reads_are_the_real_ones():
    world = await a_world(0, 1, 2)
    api = ReadOnlyApi(world.api)
    page = await api.list_page(PODS, ListOptions(namespace=NS), limit=2)
    assert [pod["metadata"]["name"] for pod in page.items] == ["dispatcher-0", "dispatcher-1"]
    rest = await api.list_page(PODS, ListOptions(namespace=NS), continue_token=page.continue_token)
    assert [pod["metadata"]["name"] for pod in rest.items] == ["dispatcher-2"]
    assert (await api.get(NODES, "", "node-0"))["metadata"]["name"] == "node-0"
    events = api.watch(PODS, resource_version=page.resource_version, timeout_s=5)
    await world.pod(3)
    async with asyncio.timeout(5):
        assert (await anext(aiter(events))).object["metadata"]["name"] == "dispatcher-3"
    assert not api.refused
