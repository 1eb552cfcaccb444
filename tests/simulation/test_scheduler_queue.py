"""The scheduling queue by itself, on a clock that the test moves."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from extender.lab.scheduler.cluster_events import Action, ClusterEvent, EventResource
from extender.lab.scheduler.queue import QueuedPod, SchedulingQueue
from extender.lab.scheduler.queueing_hints import DEFAULT_PREEMPTION, EXTENDER
from extender.lab.scheduler.types import PodInfo, node_view, pod_info
from tests.simulation.scheduler_scene import node_object, pod_object
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def queue(clock: Clock) -> SchedulingQueue:
    return SchedulingQueue(clock=clock)


def a_pod(name: str = "p", version: str = "1", **fields) -> PodInfo:
    priority = fields.pop("priority", 0)
    obj = pod_object(name, **fields)
    obj["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": version}
    obj["spec"]["priority"] = priority
    return pod_info(obj)


def node_added(**fields) -> ClusterEvent:
    return ClusterEvent(EventResource.NODE, Action.ADD, new=node_view(node_object("n", **fields)))


async def refused(queue: SchedulingQueue, *plugins: str) -> QueuedPod:
    queued = await asyncio.wait_for(queue.pop(), 1)
    queued.refused_by = set(plugins)
    queue.add_unschedulable(queued, queued.pod)
    return queued


async def test_pods_come_by_priority_and_then_by_age(queue, clock):
    for name, priority in (("old", 0), ("young", 0), ("urgent", 7)):
        queue.add(a_pod(name, priority=priority))
        clock.now += 1
    assert [(await queue.pop()).pod.name for _ in range(3)] == ["urgent", "old", "young"]


async def test_a_refused_pod_waits_for_an_event_that_may_help(queue, clock):
    queue.add(a_pod(cpu="4"))
    await refused(queue, "NodeResourcesFit")
    queue.move_all(node_added(cpu="1"))
    assert queue.pending()["unschedulable"] == 1
    queue.move_all(node_added(cpu="8"))
    assert queue.pending()["backoff"] == 1


@pytest.mark.parametrize(
    ("plugin", "event", "helps"),
    [
        pytest.param(
            "NodeUnschedulable",
            node_added(unschedulable=True),
            False,
            id="a cordoned node is added",
        ),
        pytest.param("NodeUnschedulable", node_added(), True, id="a node is added"),
        pytest.param(
            "TaintToleration",
            node_added(taints=[{"key": "k", "effect": "NoSchedule"}]),
            False,
            id="a tainted node is added",
        ),
        pytest.param("InterPodAffinity", node_added(), True, id="affinity looks at any node"),
        pytest.param(
            "NodeResourcesFit",
            ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE, old=a_pod("x", nodeName="n")),
            True,
            id="a running pod is deleted",
        ),
        pytest.param(
            "NodeAffinity",
            ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE, old=a_pod("x", nodeName="n")),
            False,
            id="a deleted pod does not change labels",
        ),
        pytest.param(
            EXTENDER,
            ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE, new=a_pod("x", nodeName="n")),
            True,
            id="an extender may care about anything",
        ),
    ],
)
async def test_only_the_plugins_that_refused_a_pod_are_asked_about_an_event(
    queue, plugin, event, helps
):
    queue.add(a_pod())
    await refused(queue, plugin)
    queue.move_all(event)
    assert (queue.pending()["unschedulable"] == 0) is helps


async def test_an_event_during_the_cycle_is_not_lost(queue):
    queue.add(a_pod())
    queued = await queue.pop()
    queue.move_all(node_added())
    queued.refused_by = {"NodeResourcesFit"}
    queue.add_unschedulable(queued, queued.pod)
    assert queue.pending() == {"active": 0, "backoff": 1, "unschedulable": 0, "in_flight": 0}


async def test_an_event_before_the_cycle_does_not_count(queue):
    queue.add(a_pod("other"))
    other = await queue.pop()  # keeps events alive
    queue.move_all(node_added())
    queue.add(a_pod())
    await refused(queue, "NodeResourcesFit")
    assert queue.pending()["unschedulable"] == 1
    queue.done(other.uid)


async def test_backoff_doubles_to_ten_seconds_and_ends_at_whole_seconds(queue, clock):
    queue.add(a_pod())
    waits = []
    for _ in range(6):
        clock.now = round(clock.now) + 0.5
        await refused(queue)  # an error: nothing refused it
        began = clock.now
        while not queue.pending()["active"]:
            clock.now += 0.5
            queue.flush_backoff()
        waits.append(clock.now - began)
    assert waits == [1.5, 2.5, 4.5, 8.5, 10.5, 10.5]


async def test_a_pod_that_was_refused_may_leave_backoff_early_but_one_that_failed_may_not(queue):
    queue.add(a_pod("refused"))
    await refused(queue, EXTENDER)
    queue.move_all(node_added())
    assert (await asyncio.wait_for(queue.pop(), 1)).pod.name == "refused"
    queue.add(a_pod("failed"))
    await refused(queue)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.pop(), 0.01)


async def test_its_own_annotation_wakes_a_pod_that_an_extender_refused_and_no_other(queue):
    for name, plugin in (("ours", EXTENDER), ("other", "NodeResourcesFit")):
        queue.add(a_pod(name))
        await refused(queue, plugin)
        queue.update(a_pod(name), a_pod(name, version="2"))
    assert queue.pending()["unschedulable"] == 1


async def test_a_pod_that_waits_five_minutes_is_tried_again(queue, clock):
    queue.add(a_pod())
    await refused(queue, "NodeResourcesFit")
    clock.now += 299
    queue.flush_unschedulable()
    assert queue.pending()["active"] == 0
    clock.now += 2
    queue.flush_unschedulable()
    assert queue.pending()["active"] == 1


async def test_a_deleted_pod_is_nowhere(queue):
    queue.add(a_pod())
    await refused(queue, EXTENDER)
    queue.nominate(a_pod(), "n")
    queue.delete("uid-p")
    assert not any(queue.pending().values())
    assert queue.nominated_pods("n") == []


async def test_a_nomination_stays_until_the_status_says_so_too(queue):
    queue.add(a_pod())
    await refused(queue, "NodeResourcesFit")
    queue.nominate(a_pod(), "n")
    queue.update(a_pod(), a_pod(version="2"))
    assert [pod.resource_version for pod in queue.nominated_pods("n")] == ["2"]


async def test_a_pod_whose_victims_are_being_deleted_is_held_back_until_a_pod_is_gone(clock):
    preempting = {"uid-p"}
    queue = SchedulingQueue(
        clock=clock, gate=lambda pod: DEFAULT_PREEMPTION if pod.uid in preempting else ""
    )
    queue.add(a_pod("other"))
    other = await queue.pop()
    preempting.clear()
    queue.add(a_pod())
    queued = await queue.pop()
    preempting.add("uid-p")
    queue.move_all(node_added())  # would help, while in flight
    queued.refused_by = {"NodeResourcesFit"}
    queue.add_unschedulable(queued, queued.pod)
    assert queue.pending()["unschedulable"] == 1
    preempting.clear()
    queue.move_all(node_added())  # no event that the gate waits for
    assert queue.pending()["unschedulable"] == 1
    gone = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE, old=a_pod("x", nodeName="n"))
    queue.move_all(gone)
    assert queue.pending()["unschedulable"] == 0
    queue.done(other.uid)


OPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "pop", "fail", "refuse", "event", "tick", "delete"]),
        st.integers(0, 4),
    ),
    max_size=60,
)


class QueueModel:
    """What must be true: ``alive`` pods are each in one place, ``flying`` ones in flight."""

    def __init__(self) -> None:
        self.clock = Clock(100.0)
        self.queue = SchedulingQueue(clock=self.clock)
        self.alive: set[str] = set()
        self.flying: dict[str, QueuedPod] = {}

    async def add(self, name: str) -> None:
        if name not in self.alive:
            self.queue.add(a_pod(name))
            self.alive.add(name)

    async def pop(self, _name: str) -> None:
        if self.queue.pending()["active"]:
            queued = await self.queue.pop()
            assert queued.pod.name not in self.flying
            self.flying[queued.pod.name] = queued

    async def fail(self, name: str, *plugins: str) -> None:
        if name in self.flying:
            queued = self.flying.pop(name)
            queued.refused_by = set(plugins)
            self.queue.add_unschedulable(queued, queued.pod)

    async def refuse(self, name: str) -> None:
        await self.fail(name, EXTENDER)

    async def event(self, _name: str) -> None:
        self.queue.move_all(node_added())

    async def tick(self, _name: str) -> None:
        self.clock.now += 11
        self.queue.flush_backoff()

    async def delete(self, name: str) -> None:
        if name in self.alive and name not in self.flying:
            self.queue.delete(f"uid-{name}")
            self.alive.discard(name)


@given(OPS)
@settings(max_examples=60, deadline=None)
def test_every_live_pod_is_in_exactly_one_place(ops):
    async def run() -> None:
        model = QueueModel()
        for op, index in ops:
            await getattr(model, op)(f"p{index}")
            pending = model.queue.pending()
            assert sum(pending.values()) == len(model.alive)
            assert pending["in_flight"] == len(model.flying)

    asyncio.run(run())
