"""``questions``: how long ``/v1/explain`` and ``/v1/plan`` take, and what the event loop, where
verbs are answered, feels of it.

The reference workload is placed, and some vpods more ask for what no pod has left. Each question is
asked of ``Questions``, as its routes do; meanwhile a task looks at the loop once a millisecond. The
peer of each question is the same task with nothing asked: what the loop's delay is more than that,
a thread that computes beside it costs (Python's interpreter changes threads each 5 ms).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final

import orjson
import uvloop

from extender.model.objects import VPod
from extender.service.http.questions import Questions
from extender.service.placing.decision_history import DecisionHistory
from extender.service.watching.caches import Caches
from tests.bench import objects
from tests.bench.clusters import SLOTS_PER_VPOD, VPODS_PER_POD, Cluster, filled_caches, raw_cluster
from tests.bench.options import Options
from tests.bench.result import Result
from tests.bench.timing import median, percentile

PODS: Final = (100, 1_000)
PODS_SHORT: Final = (100,)
PROFILES: Final = ("default", "ha")
SLOTS: Final = VPODS_PER_POD * SLOTS_PER_VPOD
"""Of a pod: what the workload takes of each."""
TIMES: Final = 5
WAITING: Final = 20
"""vpods that find no room."""
TICK_S: Final = 0.001
IDLE_S: Final = 0.5

Question = Callable[[Questions], Awaitable[bytes]]


def _plan(**request: object) -> Question:
    body = orjson.dumps({"pool": objects.POOL, **request})
    return lambda questions: questions.plan(body)


QUESTIONS: Final[dict[str, Question]] = {
    "explain, placed": lambda asked: asked.explain(f"{objects.TENANT}/{objects.vpod_name(0)}", ""),
    "explain, waits": lambda asked: asked.explain(f"{objects.TENANT}/waits-0", ""),
    "explain, pod": lambda asked: asked.explain("", f"{objects.NAMESPACE}/{objects.pod_name(0)}"),
    "plan, drain a node": _plan(drain=[f"node/{objects.node_name(0)}"], autoscale=True),
    "plan, more slots": _plan(set={"slotsPerPod": objects.SLOTS_PER_POD}),
}


def bench(options: Options) -> Iterator[Result]:
    """A line for each size, profile and question."""
    for pods in PODS_SHORT if options.short else PODS:
        for profile in PROFILES:
            caches = crowded_caches(pods, profile)
            for name, question in QUESTIONS.items():
                yield uvloop.run(_measured(caches, (pods, profile, name), question))


def crowded_caches(pods: int, profile: str) -> Caches:
    """A pool without a free slot, and vpods of eight vreplicas that wait for some."""
    total = pods * VPODS_PER_POD
    cluster = Cluster.of(raw_cluster(pods, placed=total)).by(profile)
    full = tuple(replace(pool, slots_per_pod=SLOTS) for pool in cluster.pools)
    waiting = tuple(_waiting(cluster.vpods[0], number) for number in range(WAITING))
    return filled_caches(replace(cluster, pools=full, vpods=(*cluster.vpods, *waiting)))


def _waiting(model: VPod, number: int) -> VPod:
    name = f"waits-{number}"
    return replace(
        model, name=name, uid=name, placements={}, resource_version=objects.next_version()
    )


async def _measured(caches: Caches, case: tuple[int, str, str], question: Question) -> Result:
    pods, profile, name = case
    questions = Questions(
        caches,
        history=DecisionHistory("bench", time.time),
        refusal=lambda: "",
        who=lambda _pool: {"leader": "bench"},
        deadline_s=60.0,
    )
    idle = await _delays(asyncio.sleep(IDLE_S))
    taken, busy, delays = [], [], []
    for _ in range(TIMES):
        started, cpu = time.perf_counter(), time.process_time()
        delays += await _delays(question(questions))
        taken.append(time.perf_counter() - started)
        busy.append(time.process_time() - cpu)
    return Result(
        "questions",
        {
            "pods": pods,
            "vpods": pods * VPODS_PER_POD + WAITING,
            "profile": profile,
            "question": name,
        },
        {
            "answerMilliseconds": round(median(taken) * 1e3, 1),
            "cpuMilliseconds": round(median(busy) * 1e3, 1),
            "loopDelayP50Milliseconds": round(median(delays) * 1e3, 2),
            "loopDelayP99Milliseconds": round(percentile(delays, 99) * 1e3, 2),
            "loopDelayMaxMilliseconds": round(max(delays) * 1e3, 2),
            "peerIdleP99Milliseconds": round(percentile(idle, 99) * 1e3, 2),
        },
    )


async def _delays(work: Awaitable[object]) -> list[float]:
    """By how much the loop was late, each millisecond of some work, in seconds."""
    done = asyncio.ensure_future(work)
    late = []
    while not done.done():
        asked = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append(max(0.0, time.perf_counter() - asked - TICK_S))
    await done
    return late
