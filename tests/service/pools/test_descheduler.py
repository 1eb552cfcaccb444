"""The descheduler evicts one pod after the other, as the API server allows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.kube.api import Api, ApiError, Forbidden, TooManyRequests
from extender.kube.events import EventRecorder
from extender.kube.fence import NotLeading
from extender.model.eviction import Eviction, deadline_s, encode_eviction
from extender.model.moves import MoveReason
from extender.model.names import EVICTING_ANNOTATION
from extender.model.node_fit import NodeFit, Taint
from extender.model.objects import Handoff, HandoffMode
from extender.model.timestamps import timestamp
from extender.service.pools.descheduler import LOOK_S, LOOKS_OF_OTHERS, Descheduler
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set
from tests.support.service import EPOCH_S, lost, wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime

TAINTS = (Taint("dedicated", "batch", "NoSchedule"),)
PERIOD_S = 100


class Bench:
    """Two pods on a tainted node, a free node, and an API that answers ``error`` to evictions."""

    def __init__(self, **pool) -> None:
        self.caches = Caches()
        self._versions = 0
        self.error: Exception | None = None
        self.evicted: list[tuple[int, str]] = []
        """(Loop time, pod)."""
        self.marked: list[tuple[int, str]] = []
        """(Loop time, pod)."""
        self.events: list[tuple[str, str]] = []
        self.caches.nodes.update(a_node(taints=TAINTS))
        self.caches.nodes.update(a_node("node-1"))
        self.caches.stateful_sets.update(a_stateful_set(2))
        self._of_pool: dict[str, Any] = {
            "descheduling": ("NodeTaints",),
            "scale_down_period_s": PERIOD_S,
            **pool,
        }
        self.pool()
        for ordinal in range(2):
            self.pod(ordinal, "1")
        self.descheduler = Descheduler(
            self.caches,
            fenced=lambda _pool: cast("Api", self),
            recorder=cast("EventRecorder", self),
            metrics=Metrics(),
            now=wall,
        )

    def pool(self, **fields) -> None:
        self._of_pool |= fields
        self._versions += 1
        self.caches.pools.update(a_pool(**self._of_pool, resource_version=str(self._versions)))

    def pod(self, ordinal: int, version: str, **fields) -> None:
        old = timestamp(EPOCH_S - 7200)
        usual: dict[str, Any] = {
            "ready": True,
            "created_at": old,
            "fit": NodeFit(),
            "resource_version": version,
        }
        self.caches.pods.update(a_pod(ordinal, **{"ledger": {}, **usual, **fields}))

    async def patch(self, _plural, namespace: str, name: str, patch, *, patch_type) -> None:
        self.marked.append((round(asyncio.get_running_loop().time()), name))
        pod = self.caches.pods.get(f"{namespace}/{name}")
        assert pod is not None
        text = patch["metadata"]["annotations"][EVICTING_ANNOTATION]
        version = str(int(pod.resource_version) + 1)
        self.caches.pods.update(replace(pod, evicting_text=text, resource_version=version))
        raise ApiError(500, "InternalError", "the answer is lost, and the watch tells of the mark")

    async def evict(self, _namespace: str, name: str, *, preconditions) -> None:
        self.evicted.append((round(asyncio.get_running_loop().time()), name))
        assert preconditions.uid
        assert preconditions.resource_version
        if self.error is not None:
            raise self.error

    def told(self) -> tuple[bool, str, str]:
        """PodsMisplaced: status, reason and message."""
        condition = self.descheduler.condition(POOL)
        assert condition is not None
        kind, holds, reason, message = condition
        assert kind == "PodsMisplaced"
        return holds, reason, message

    def event(self, regarding, *, reason, note, cause="", related=None) -> None:
        self.events.append((reason, regarding.name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with at_work(self.descheduler.run()):
            yield


async def test_pods_are_evicted_one_at_a_time_after_the_last_is_back():
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        assert bench.evicted == [(100, "dispatcher-1")]
        bench.pod(1, "2", ready=False)
        await asyncio.sleep(3 * PERIOD_S)
        assert len(bench.evicted) == 1
        bench.pod(1, "3", uid="new", node="node-1")
        await asyncio.sleep(20)
    assert [name for _, name in bench.evicted] == ["dispatcher-1", "dispatcher-0"]
    assert bench.events == [("Descheduled", "dispatcher-1"), ("Descheduled", "dispatcher-0")]


async def test_a_pod_that_is_not_ready_itself_goes_first_and_the_budget_is_asked():
    bench = Bench()
    bench.pod(0, "2", ready=False)
    bench.error = TooManyRequests(429, "TooManyRequests", "disruption budget")
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        assert bench.evicted == [(100, "dispatcher-0")]
        assert bench.told()[1] == "DisruptionBudget"
        bench.error = None
        await asyncio.sleep(15)
        assert bench.told()[1] == "EvictedPodNotReady"
    assert [name for _, name in bench.evicted] == ["dispatcher-0", "dispatcher-0"]


async def test_without_opting_in_nothing_is_evicted():
    bench = Bench(descheduling=())
    async with bench.running():
        await asyncio.sleep(5 * PERIOD_S)
    assert bench.evicted == []


async def test_a_budget_that_refuses_is_asked_again_after_longer_and_longer():
    bench = Bench()
    bench.error = TooManyRequests(429, "TooManyRequests", "budget b", retry_after_s=10.0)
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 75)
    assert [at for at, _ in bench.evicted] == [100, 110, 130, 170]
    assert bench.events[0] == ("DeschedulingRefused", "dispatcher")


async def test_a_pod_that_is_handing_over_is_tried_at_each_look_and_is_no_refusal():
    bench = Bench()
    bench.error = WEBHOOK
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 45)
        assert [at for at, _ in bench.evicted] == [100, 110, 120, 130, 140]
        bench.error = None
        await asyncio.sleep(10)
    assert bench.events == [("Descheduled", "dispatcher-1")]


HANDS_OVER = Handoff(mode=HandoffMode.OVERLAP)
TURN = Eviction(EPOCH_S, EPOCH_S, MoveReason.MAINTENANCE, turn_s=EPOCH_S)
OVER_S = round(deadline_s(a_pool(handoff=HANDS_OVER)))
LOOKED_S = 1000


@pytest.mark.parametrize(
    ("change", "renewed_until_s"),
    [
        pytest.param(lambda _: None, LOOKED_S, id="it stays where it should not be"),
        pytest.param(
            lambda bench: bench.caches.state.pools[POOL].set_closed(0b10),
            0,
            id="it is being emptied to be removed (seed 245130788)",
        ),
        pytest.param(
            lambda bench: bench.pool(descheduling=("NodeMaintenance",)),
            0,
            id="its reason counts no more",
        ),
        pytest.param(
            lambda bench: bench.caches.nodes.update(a_node("node-1", taints=TAINTS)),
            OVER_S,
            id="no other node takes it",
        ),
    ],
)
async def test_a_mark_is_renewed_while_its_pod_is_to_go(change, renewed_until_s: int):
    """Found by review: it was renewed for ever, and others waited behind it for their turn."""
    bench = Bench(handoff=HANDS_OVER)
    ledger = {"tenant/a": 1}
    bench.pod(1, "2", ledger=ledger, evicting_text=encode_eviction(TURN, "uid-1"))
    change(bench)
    async with bench.running():
        await asyncio.sleep(LOOKED_S)
    renewed = [at for at, name in bench.marked if name == "dispatcher-1"]
    assert max(renewed, default=0) == pytest.approx(renewed_until_s, abs=LOOK_S)


async def test_an_eviction_without_an_answer_counts_as_made():
    bench = Bench()
    bench.error = lost("evict")
    async with bench.running():
        await asyncio.sleep(2 * PERIOD_S - 5)
    assert bench.evicted == [(100, "dispatcher-1")]
    assert bench.events == []


BOTH = (
    "2 pods stand on nodes that they should have left: "
    "dispatcher-0 (NodeTaints), dispatcher-1 (NodeTaints); "
)
WEBHOOK = TooManyRequests(
    429,
    "TooManyRequests",
    'admission webhook "evictions.vreplica.dev" denied the request: pod a/b still has 2 vreplicas',
)
FORBIDDEN = Forbidden(403, "Forbidden", "cannot create pods/eviction")
BUDGET = TooManyRequests(429, "TooManyRequests", "The disruption budget b needs 2")


@pytest.mark.parametrize(
    ("pool", "error", "told"),
    [
        pytest.param(
            {"descheduling": ("NodeAffinity",)},
            None,
            ("NotEnabled", "not evicted: spec.descheduling.reasons of the AdapterPool does not "),
            id="not opted in",
        ),
        pytest.param(
            {}, WEBHOOK, ("HandingOver", "not evicted: dispatcher-1 hands over"), id="a hand-over"
        ),
        pytest.param({}, BUDGET, ("DisruptionBudget", "not evicted: 429 TooMany"), id="a budget"),
        pytest.param(
            {}, FORBIDDEN, ("EvictionForbidden", "not evicted: 403 Forbidden"), id="no right"
        ),
        pytest.param(
            {},
            ApiError(500, "InternalError", "more than one PodDisruptionBudget"),
            ("EvictionRefused", "not evicted: 500 InternalError"),
            id="two budgets",
        ),
        pytest.param(
            {"min_pod_age_s": 10_000},
            None,
            ("PodTooYoung", "not evicted: it is younger than minPodAgeSeconds (10000)"),
            id="young pods",
        ),
    ],
)
async def test_the_condition_tells_why_misplaced_pods_stay(pool, error, told):
    bench = Bench(**pool)
    bench.error = error
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 15)
        holds, reason, message = bench.told()
    assert (holds, reason) == (True, told[0])
    assert message.startswith(BOTH + told[1])


async def test_the_condition_tells_that_no_pod_is_misplaced():
    bench = Bench()
    bench.caches.nodes.update(a_node())
    async with bench.running():
        await asyncio.sleep(1)
        assert bench.told()[:2] == (False, "NoneMisplaced")


async def test_a_pool_that_has_not_opted_in_is_told_of_a_misplaced_pod_within_a_minute():
    bench = Bench(descheduling=())
    bench.caches.nodes.update(a_node())
    async with bench.running():
        await asyncio.sleep(1)
        bench.caches.nodes.update(a_node(taints=TAINTS))
        await asyncio.sleep(LOOK_S * LOOKS_OF_OTHERS - 5)
        assert bench.told()[1] == "NoneMisplaced"
        await asyncio.sleep(10)
        assert bench.told()[1] == "NotEnabled"


async def test_a_refusal_is_forgotten_once_an_eviction_succeeds():
    bench = Bench()
    bench.error = FORBIDDEN
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        assert bench.told()[1] == "EvictionForbidden"
        bench.error = None
        await asyncio.sleep(15)
        assert bench.told()[1] == "EvictedPodNotReady"
        bench.pod(1, "2", uid="new", node="node-1")
        await asyncio.sleep(15)
        assert bench.told() == (
            True,
            "EvictionDue",
            "1 pod stands on a node that it should have left: dispatcher-0 (NodeTaints); "
            "evicted one at a time",
        )


async def test_after_an_eviction_that_left_a_pod_pending_no_other_pod_is_evicted():
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        bench.pod(1, "2", uid="new", node="", ready=False)
        await asyncio.sleep(20 * PERIOD_S)
        assert [name for _, name in bench.evicted] == ["dispatcher-1"]
        holds, reason, message = bench.told()
        assert (holds, reason) == (True, "EvictedPodNotReady")
        assert "dispatcher-1 was evicted (node node-0 has the taint" in message
        assert "has no node yet" in message
        bench.pod(1, "3", uid="new", node="node-1")
        await asyncio.sleep(15)
    assert [name for _, name in bench.evicted] == ["dispatcher-1", "dispatcher-0"]


async def test_the_only_misplaced_pod_counts_until_its_ordinal_is_ready_again():
    bench = Bench()
    bench.pod(0, "2", node="node-1")
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        bench.pod(1, "2", uid="new", node="", ready=False)
        await asyncio.sleep(PERIOD_S)
        assert bench.told()[:2] == (True, "EvictedPodNotReady")
        bench.pod(1, "3", uid="new", node="node-1")
        await asyncio.sleep(15)
        assert bench.told()[:2] == (False, "NoneMisplaced")


async def test_a_replica_that_no_longer_leads_reports_no_refusal():
    bench = Bench()
    bench.error = NotLeading()
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        assert bench.told()[1] == "EvictionDue"
    assert bench.events == []


async def test_a_watch_that_is_behind_lets_no_second_pod_go():
    """The period is over before the watch shows that the first pod is leaving."""
    bench = Bench(scale_down_period_s=1)
    async with bench.running():
        await asyncio.sleep(60)
    assert [name for _, name in bench.evicted] == ["dispatcher-1"]


async def test_a_pool_that_is_gone_has_no_condition_any_more():
    """It was kept until another replica led: only the state's pools were looked at."""
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(1)
        assert bench.told()[0]
        for pod in bench.caches.pods.list():
            bench.caches.pods.delete(pod)
        bench.caches.pools.delete(a_pool())
        assert POOL not in bench.caches.state.pools
        await asyncio.sleep(LOOK_S)
        assert bench.descheduler.condition(POOL) is None
