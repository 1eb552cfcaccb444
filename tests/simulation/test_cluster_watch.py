"""Lists that agree across pages, watches that lose nothing, and 410 where they would."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from extender.kube.api import (
    NODES,
    PODS,
    ApiError,
    Binding,
    Expired,
    ListOptions,
    Obj,
    PatchType,
    WatchEventType,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.embedded import node_object
from tests.simulation.cluster_scene import NS, a_cluster, a_pod, all_events, take

MERGE = PatchType.MERGE


async def label(cluster: Cluster, name: str, **labels: str) -> Obj:
    return await cluster.patch(PODS, NS, name, {"metadata": {"labels": labels}}, patch_type=MERGE)


async def test_pages_of_one_list_agree_although_writes_go_on():
    cluster = a_cluster()
    for number in range(5):
        await cluster.create(PODS, NS, a_pod(f"p{number}"))
    first = await cluster.list_page(PODS, limit=2)
    await cluster.delete(PODS, NS, "p3")
    await cluster.create(PODS, NS, a_pod("p2b"))
    await label(cluster, "p4", late="1")
    second = await cluster.list_page(PODS, limit=2, continue_token=first.continue_token)
    third = await cluster.list_page(PODS, limit=2, continue_token=second.continue_token)
    pages = [first, second, third]
    assert [item["metadata"]["name"] for page in pages for item in page.items] == [
        "p0",
        "p1",
        "p2",
        "p3",
        "p4",
    ]
    assert {page.resource_version for page in pages} == {first.resource_version}
    assert third.items[0]["metadata"].get("labels") is None
    assert third.continue_token == ""


async def test_a_continue_token_from_before_the_history_is_expired():
    cluster = a_cluster(history_events_max=3)
    for number in range(3):
        await cluster.create(PODS, NS, a_pod(f"p{number}"))
    page = await cluster.list_page(PODS, limit=1)
    for number in range(4):
        await label(cluster, "p0", n=str(number))
    with pytest.raises(Expired):
        await cluster.list_page(PODS, limit=1, continue_token=page.continue_token)


async def test_a_continue_token_that_is_none_is_a_bad_request():
    with pytest.raises(ApiError, match="continue key is not valid"):
        await a_cluster().list_page(PODS, continue_token="nonsense!")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("", ["a", "b", "c"], id="empty"),
        pytest.param("app=x", ["a"], id="equal"),
        pytest.param("app==x", ["a"], id="double equal"),
        pytest.param("app!=x", ["b", "c"], id="not equal, or absent"),
        pytest.param("app in (x, y)", ["a", "b"], id="in"),
        pytest.param("app notin (x)", ["b", "c"], id="notin, or absent"),
        pytest.param("app", ["a", "b"], id="exists"),
        pytest.param("!app", ["c"], id="does not exist"),
        pytest.param("app in (x,y),tier=1", ["b"], id="both"),
    ],
)
async def test_label_selectors(selector, names):
    cluster = a_cluster()
    labels = {"a": {"app": "x"}, "b": {"app": "y", "tier": "1"}, "c": {"tier": "1"}}
    for name, its in labels.items():
        await cluster.create(PODS, NS, a_pod(name, labels=its))
    page = await cluster.list_page(PODS, ListOptions(label_selector=selector))
    assert [item["metadata"]["name"] for item in page.items] == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("spec.nodeName=", ["b"], id="not bound"),
        pytest.param("spec.nodeName!=", ["a"], id="bound"),
        pytest.param("spec.nodeName=n1,status.phase=Pending", ["a"], id="two fields"),
        pytest.param("metadata.name=b", ["b"], id="name"),
        pytest.param("metadata.namespace==default", ["a", "b"], id="namespace"),
        pytest.param("spec.schedulerName=other", [], id="scheduler"),
    ],
)
async def test_field_selectors(selector, names):
    cluster = a_cluster()
    for name in ("a", "b"):
        await cluster.create(PODS, NS, a_pod(name))
    await cluster.bind(Binding(NS, "a", "n1"))
    page = await cluster.list_page(PODS, ListOptions(field_selector=selector))
    assert [item["metadata"]["name"] for item in page.items] == names


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            ListOptions(field_selector="spec.hostname=x"), id="field that is not selectable"
        ),
        pytest.param(ListOptions(field_selector="nonsense"), id="no operator"),
        pytest.param(ListOptions(label_selector="a in x"), id="set without parentheses"),
        pytest.param(ListOptions(label_selector="a b"), id="two words"),
    ],
)
async def test_a_bad_selector_is_a_bad_request(options):
    cluster = a_cluster()
    with pytest.raises(ApiError) as refused:
        await cluster.list_page(PODS, options)
    assert refused.value.status == 400
    with pytest.raises(ApiError):
        await anext(cluster.watch(PODS, options, resource_version="1"))


async def test_a_watch_tells_what_came_after_its_version():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod("before"))
    since = str(cluster.version)
    await cluster.create(PODS, NS, a_pod("p"))
    await cluster.create(NODES, "", node_object("n", "z"))
    await label(cluster, "p", a="1")
    await cluster.delete(PODS, NS, "p")
    seen = await take(cluster.watch(PODS, resource_version=since), 4)
    assert seen == [("ADDED", "p"), ("MODIFIED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


async def test_a_watch_without_a_version_begins_with_what_is_there():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod("there"))
    for version in ("", "0"):
        assert await take(cluster.watch(PODS, resource_version=version), 1) == [("ADDED", "there")]


async def test_a_deleted_object_is_told_at_the_version_of_its_deletion():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod(labels={"a": "1"}))
    since = str(cluster.version)
    await cluster.delete(PODS, NS, "p")
    watch = cluster.watch(PODS, resource_version=since)
    marked, event = await anext(watch), await anext(watch)
    assert marked.type is WatchEventType.MODIFIED
    assert marked.object["metadata"]["deletionGracePeriodSeconds"] == 0
    assert event.type is WatchEventType.DELETED
    assert event.object["metadata"]["resourceVersion"] == str(cluster.version)
    assert event.object["metadata"]["labels"] == {"a": "1"}


async def test_objects_that_enter_or_leave_a_selector_are_added_or_deleted():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod())
    since = str(cluster.version)
    await label(cluster, "p", app="x")
    await label(cluster, "p", app="x", more="1")
    await label(cluster, "p", app="y")
    watch = cluster.watch(PODS, ListOptions(label_selector="app=x"), resource_version=since)
    events = [await anext(watch) for _ in range(3)]
    assert [event.type.value for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    gone = events[-1].object["metadata"]
    assert gone["labels"] == {"app": "x", "more": "1"}
    assert gone["resourceVersion"] == str(cluster.version)


@pytest.mark.looptime
async def test_a_bound_pod_leaves_the_watch_of_unbound_ones():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod())
    since = str(cluster.version)
    await cluster.bind(Binding(NS, "p", "n"))
    events = await all_events(
        cluster, options=ListOptions(field_selector="spec.nodeName="), since=since
    )
    assert [event.type.value for event in events] == ["DELETED", "BOOKMARK"]


@pytest.mark.looptime
async def test_bookmarks_come_each_minute_and_at_the_timeout():
    cluster = a_cluster()
    loop = asyncio.get_running_loop()
    seen = []
    async for event in cluster.watch(PODS, resource_version=str(cluster.version), timeout_s=150):
        seen.append(
            (round(loop.time()), event.type.value, event.object["metadata"]["resourceVersion"])
        )
        await cluster.create(NODES, "", node_object(f"n{len(seen)}", "z"))
    start = cluster.version - 3
    assert seen == [
        (60, "BOOKMARK", str(start)),
        (120, "BOOKMARK", str(start + 1)),
        (150, "BOOKMARK", str(start + 2)),
    ]


@pytest.mark.looptime
async def test_a_waiting_watch_is_woken_by_a_write():
    cluster = a_cluster()
    watch = cluster.watch(PODS, resource_version=str(cluster.version))
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(5)
    assert not waiting.done()
    await cluster.create(PODS, NS, a_pod())
    assert (await waiting).object["metadata"]["name"] == "p"


async def test_a_watch_from_before_the_history_is_expired():
    cluster = a_cluster(history_events_max=2)
    await cluster.create(PODS, NS, a_pod())
    since = str(cluster.version)
    for number in range(2):
        await label(cluster, "p", n=str(number))
    assert len(await take(cluster.watch(PODS, resource_version=since), 2)) == 2
    await label(cluster, "p", n="more")
    with pytest.raises(Expired, match="too old resource version"):
        await anext(cluster.watch(PODS, resource_version=since))


async def test_a_watch_overtaken_by_the_history_is_expired():
    cluster = a_cluster(history_events_max=2)
    await cluster.create(PODS, NS, a_pod())
    watch = cluster.watch(PODS, resource_version=str(cluster.version))
    await label(cluster, "p", n="first")
    assert (await anext(watch)).type is WatchEventType.MODIFIED
    for number in range(3):
        await label(cluster, "p", n=str(number))
    with pytest.raises(Expired):
        await anext(watch)


async def test_compaction_expires_watches_from_before():
    cluster = a_cluster()
    since = str(cluster.version)
    await cluster.create(PODS, NS, a_pod())
    cluster.compact()
    with pytest.raises(Expired):
        await anext(cluster.watch(PODS, resource_version=since))
    await label(cluster, "p", a="1")
    fresh = cluster.watch(PODS, resource_version=str(cluster.version - 1))
    assert (await anext(fresh)).type is WatchEventType.MODIFIED


async def test_a_watch_from_a_version_in_the_future_tells_nothing_before_it():
    cluster = a_cluster()
    watch = cluster.watch(PODS, resource_version=str(cluster.version + 2))
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    for name in "abc":
        await cluster.create(PODS, NS, a_pod(name))
    assert (await waiting).object["metadata"]["name"] == "c"


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["create", "x", "y", "bind", "delete"])),
    max_size=25,
)


async def _step(cluster: Cluster, name: str, what: str) -> None:
    try:
        if what == "create":
            await cluster.create(PODS, NS, a_pod(name))
        elif what == "bind":
            await cluster.bind(Binding(NS, name, "n"))
        elif what == "delete":
            await cluster.delete(PODS, NS, name, grace_period_s=0)
        else:
            await label(cluster, name, app=what)
    except ApiError:
        return


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS, cut=st.integers(0, 25), selector=st.sampled_from(["", "app=x", "!app", "app!=y"])
)
def test_list_then_watch_always_ends_in_what_a_list_shows(steps, cut, selector):
    async def scenario() -> None:
        cluster = a_cluster()
        options = ListOptions(label_selector=selector)
        for name, what in steps[:cut]:
            await _step(cluster, name, what)
        page = await cluster.list_page(PODS, options)
        gvk = {"kind": "Pod", "apiVersion": "v1"}  # events say it of each object, lists once
        seen = {item["metadata"]["name"]: {**gvk, **item} for item in page.items}
        for name, what in steps[cut:]:
            await _step(cluster, name, what)
        async for event in cluster.watch(
            PODS, options, resource_version=page.resource_version, timeout_s=0.0
        ):
            name = event.object["metadata"].get("name")
            match event.type:
                case WatchEventType.ADDED:
                    assert name not in seen
                    seen[name] = event.object
                case WatchEventType.MODIFIED:
                    assert name in seen
                    seen[name] = event.object
                case WatchEventType.DELETED:
                    del seen[name]
                case WatchEventType.BOOKMARK:
                    assert event.object["metadata"]["resourceVersion"] == str(cluster.version)
        now = await cluster.list_page(PODS, options)
        assert sorted(seen) == [item["metadata"]["name"] for item in now.items]
        assert [seen[name] for name in sorted(seen)] == [{**gvk, **item} for item in now.items]

    asyncio.run(scenario())
