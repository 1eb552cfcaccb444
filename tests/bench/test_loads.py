"""The webhook's reviews, the API server stub and a simulated seed are what their benches say."""

import asyncio
import json
import random
from pathlib import Path

import orjson

from extender.engine.state.ordinal_history import OrdinalHistory
from extender.kube.client import KubeApi
from extender.service.watching.caches import Caches
from extender.service.watching.informers import Informers
from tests.bench import memory, objects, simulation, webhook
from tests.bench.http_client import Connection, request

PODS = 24


async def test_reviews_are_allowed_by_both_servers_and_stamped_by_ours():
    bodies = webhook.reviews(PODS)
    assert [*bodies] == ["/mutate", "/validate"]
    async with (
        webhook.webhook(webhook.filled_caches(PODS), None) as ours,
        webhook.no_op(None) as peer,
    ):
        for path, body in bodies.items():
            one = await webhook.load(None, ours, path, body, connections=2, reviews=4)
            other = await webhook.load(None, peer, path, body, connections=2, reviews=4)
            line = json.loads(webhook.result_of(path, 2, PODS, [(one, other)]).json_line())
            assert (line["bench"], line["path"], line["connections"]) == ("webhook", path, 2)
            assert len(one.waits_s) == len(other.waits_s) == 4
            assert {
                "reviewsPerSecond",
                "p50Milliseconds",
                "p99Milliseconds",
                "noOpRatio",
            } <= line.keys()
        connection = await Connection.open(ours)
        answer = orjson.loads(await connection.post(request("/mutate", bodies["/mutate"])))
        connection.close()
    assert answer["response"]["patchType"] == "JSONPatch"


def test_percentiles_are_of_the_reviews_of_all_repetitions_together():
    quick, slow = (webhook.Load(1.0, 0.1, [wait_s] * 50) for wait_s in (0.001, 0.004))
    other = webhook.Load(1.0, 0.1, [0.002] * 50)
    line = webhook.result_of("/mutate", 1, PODS, [(quick, other), (slow, quick), (quick, slow)])
    assert (line.figures["p50Milliseconds"], line.figures["p99Milliseconds"]) == (1.0, 4.0)
    assert line.figures["noOpP99Milliseconds"] == 4.0


async def test_the_service_sees_the_adapters_of_the_stub_and_no_other_pods(tmp_path: Path):
    stub, waiting = memory.stub_of(PODS)
    caches, loop = Caches(), asyncio.get_running_loop()
    assert stub.other_pods == 4 * PODS
    async with stub.serving() as url:
        memory.written_config(tmp_path, url)
        async with await KubeApi.connect(kubeconfig=str(tmp_path / "kubeconfig")) as api:
            informers = Informers(
                api, caches, rng=random.Random(1), ordinal_history=OrdinalHistory(loop.time)
            )
            task = asyncio.create_task(informers.run())
            await informers.wait_synced()
            updated = asyncio.Event()
            caches.pods.add_event_handler(
                lambda old, _new: updated.set() if old is not None else None
            )
            stub.tell("pods", stub.lists["pods"][:1])
            await updated.wait()
            task.cancel()
            await asyncio.wait([task])
    assert (stub.listed["pods"], len(caches.pods), len(caches.vpods)) == (
        PODS + 1,
        PODS + 1,
        2 * PODS,
    )
    assert not stub.writes
    pool = caches.state.pool(objects.POOL)
    assert not pool.vpods_with_pending
    assert not pool.overcommitted()
    assert pool.is_member(pool.pods[waiting["metadata"]["name"]])


def test_a_seed_passes():
    one = simulation.simulated(1, 5)
    assert one.passed
    assert one.cpu_s > 0
