"""What the page is tried on: a state of any size, served as the service serves it, and answers to
what the page asks.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web

from extender.config.model import Config, Mode
from extender.engine.state.cluster_state import ClusterState
from extender.kube.serving.browsers import Sites, only_own_site
from extender.kube.serving.guard import ConnectionLimits
from extender.kube.serving.listener import Listener, body_of
from extender.model.ledger import Share
from extender.model.objects import AdapterPod, Condition, Node, VPod
from extender.service.http.page.facts import Facts, News
from extender.service.http.page.history import PERIOD_S
from extender.service.http.page.routes import Page
from extender.service.http.page.stream import Streams
from extender.service.http.server import LINKS
from extender.telemetry.metrics import Metrics
from tests.support.builders import POOL, a_pod, a_pool, a_stateful_set

TENANT_NAMES = (
    "alpine",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbor",
    "island",
    "juniper",
    "kelp",
    "lagoon",
    "meadow",
    "north",
    "ocean",
    "prairie",
    "quarry",
    "river",
    "summit",
    "tundra",
    "upland",
    "valley",
    "willow",
    "zephyr",
)


class Leader:
    """As much of ``Leadership`` as the page asks."""

    def __init__(self, *, leads: bool = True, leader: str = "replica-0") -> None:
        self.identity = "replica-0"
        self._leads = leads
        self._leader = leader

    def leading(self) -> bool:
        return self._leads

    def leads(self, _pool: str) -> bool:
        return self._leads

    def leader(self, _pool: str) -> str:
        return self._leader


class Cluster:
    """``pods`` adapter pods with ``vpods`` vpods of eight vreplicas on them, in three zones, some
    of it in trouble.
    """

    def __init__(
        self,
        *,
        pods: int,
        vpods: int,
        nodes: int,
        tenants: int = 24,
        waiting: int = 3,
        seed: int = 7,
    ) -> None:
        self.state = ClusterState()
        self.pods: dict[str, AdapterPod] = {}
        self.vpods: dict[str, VPod] = {}
        self.nodes: dict[str, Node] = {}
        self._rng = random.Random(seed)
        self._numbers = (pods, vpods, nodes)
        self.state.stateful_set_changed(None, a_stateful_set(pods))
        self.state.adapter_pool_changed(None, a_pool(20))
        for index in range(nodes):
            zone = f"zone-{'abc'[index % 3]}"
            self.put(Node(name=f"node-{index}", zone=zone, cordoned=index == 4, ready=index != 7))
        ledgers: list[dict[str, Share]] = [{} for _ in range(pods)]
        for number in range(vpods):
            self.put(self._a_vpod(number, tenants, ledgers, waits=number < waiting))
        for ordinal, ledger in enumerate(ledgers):
            self.put(
                a_pod(
                    ordinal, ledger, node="" if ordinal == pods - 1 else f"node-{ordinal % nodes}"
                )
            )

    def _a_vpod(
        self, number: int, tenants: int, ledgers: Sequence[dict[str, Share]], *, waits: bool
    ) -> VPod:
        tenant = TENANT_NAMES[int(tenants * self._rng.random() ** 2)]
        key = f"{tenant}/orders-{number}"
        start = self._rng.randrange(len(ledgers))
        placements: dict[str, int] = {}
        for step in range(len(ledgers)):
            at = (start + step * 7) % len(ledgers)
            if sum(placements.values()) == 8 - 3 * waits:
                break
            if sum(share.slots for share in ledgers[at].values()) < 20:
                ledgers[at][key] = Share(1)
                placements[f"dispatcher-{at}"] = 1
        conditions = (
            (Condition("Scheduled", "False", "InsufficientSlots", "0/9 pods have room"),)
            if waits
            else ()
        )
        return VPod(
            namespace=tenant,
            name=f"orders-{number}",
            pool=POOL,
            vreplicas=8,
            placements=placements,
            conditions=conditions,
        )

    def put(self, obj: AdapterPod | VPod | Node) -> None:
        """What is new or has changed."""
        match obj:
            case AdapterPod():
                self.state.pod_changed(self.pods.get(obj.name), obj)
                self.pods[obj.name] = obj
            case VPod():
                self.state.vpod_changed(self.vpods.get(obj.key), obj)
                self.vpods[obj.key] = obj
            case Node():
                self.state.node_changed(self.nodes.get(obj.name), obj)
                self.nodes[obj.name] = obj

    def churn(self, moves: int) -> None:
        """Move some vreplicas to other pods, ledgers and statuses alike."""
        keys = sorted(self.vpods)
        for _ in range(moves):
            vpod = self.vpods[self._rng.choice(keys)]
            if not vpod.placements:
                continue
            source = self._rng.choice(sorted(vpod.placements))
            target = self._rng.choice(sorted(self.pods))
            if (
                target in vpod.placements
                or sum(s.slots for s in self.pods[target].ledger.values()) >= 20
            ):
                continue
            count = vpod.placements[source]
            self._set(source, vpod.key, 0)
            self._set(target, vpod.key, count)
            left = {name: n for name, n in vpod.placements.items() if name != source}
            self.put(replace(vpod, placements={**left, target: count}))

    def _set(self, pod_name: str, key: str, vreplicas: int) -> None:
        pod = self.pods[pod_name]
        ledger = {vpod: share for vpod, share in pod.ledger.items() if vpod != key}
        if vreplicas:
            ledger[key] = Share(vreplicas)
        self.put(replace(pod, ledger=ledger))


class Answers:
    """What stands in for the questions that the page asks beside its stream: canned, and asked for
    is noted.
    """

    def __init__(
        self, explain: Mapping[str, object] | None = None, plan: Mapping[str, object] | None = None
    ):
        self.explain = explain
        self.plan = plan
        self.asked: list[dict[str, object]] = []

    def add_routes(self, app: web.Application) -> None:
        if self.explain is not None:
            app.router.add_get("/v1/explain", self._explain)
        if self.plan is not None:
            app.router.add_post("/v1/plan", self._plan)

    async def _explain(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        return web.json_response(self.explain)

    async def _plan(self, request: web.Request) -> web.Response:
        self.asked.append(json.loads(await body_of(request).read()))
        return web.json_response(self.plan)


def a_page(state: ClusterState, leader: Leader | None = None, *, mode: Mode = Mode.ACTIVE) -> Page:
    """The page over a state, as the service makes it."""
    return Page(
        state,
        leader or Leader(),  # type: ignore[arg-type]
        Config(mode=mode),
        problems=list,
        now=time.time,
        metrics=Metrics(),
    )


class Held:
    """The facts of a pool that cannot be told before ``told`` is set, as over a slow connection."""

    def __init__(self, facts: Facts, told: asyncio.Event) -> None:
        self._facts = facts
        self._told = told

    async def look(self) -> News:
        await self._told.wait()
        return await self._facts.look()

    def all(self) -> News:
        return self._facts.all()


def hold_pools_back(page: Page) -> asyncio.Event:
    """Have the page tell nothing of any pool, but the counts of all, until the event is set."""
    told = asyncio.Event()

    def facts(pool: str) -> Facts:
        made = page._facts(pool)
        return Held(made, told) if pool else made  # type: ignore[return-value]

    page.streams = Streams(facts)
    return told


@asynccontextmanager
async def served(
    page: Page, answers: Answers | None = None, limits: ConnectionLimits | None = None
) -> AsyncIterator[str]:
    """The page over a real socket; its URL, without a path."""
    app = web.Application(middlewares=[only_own_site(lambda: Sites(checks_host=True, links=LINKS))])
    page.add_routes(app)
    if answers is not None:
        answers.add_routes(app)
    listener = Listener(limits)
    port = await listener.start(app, "127.0.0.1", 0, tls=None)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await listener.stop()


async def an_hour_of_history(page: Page, cluster: Cluster, *, samples: int = 360) -> None:
    """Samples as if the pool had grown to what it is over an hour."""
    await page.history.sample()
    final = list(page.history.of(POOL).values())[-1]
    values = page.history._pools[POOL].values
    now = int(time.time())
    page.history.times.clear()
    del values[:]
    for index in range(samples):
        share = min(1.0, 0.35 + 0.75 * index / samples)
        slots, used, _free, _, pods, *_ = (int(value * share) for value in final)
        used = min(slots, used + (20 if index % 60 < 12 else 0))
        waits = max(0, 60 - 5 * (index % 60)) if index % 60 < 12 else 0
        values.extend([slots, used, slots - used, waits, pods, waits, 0, 0, 0])
        page.history.times.append(now - int((samples - index) * PERIOD_S))
    page.history._made.clear()
