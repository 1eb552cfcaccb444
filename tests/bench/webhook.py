"""``webhook``: the webhook's own server over HTTPS on loopback, beside one that says yes to
everything.

Both serve in this process on uvloop, as ``vreplica-webhook`` does, with the same certificate; both
read the whole body. Clients keep their connections, as the API server does, and each sends its next
review when the last one is answered. The webhook's caches hold a whole placed cluster.
``milliseconds`` are what a client waits, so they include the client, which shares the loop: one
connection shows what a review takes, eight what the server can do.

Repetitions of both servers take turns. Percentiles are of the reviews of all repetitions together:
a slow one is as much a part of what a client sees as a quick one. Rates and processor time are of
the best repetition, which its neighbours on the machine have hit least; ``noOpRatio`` is the median
of what a review costs in CPU to what one costs that the other server answers, clients included.
"""

import asyncio
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import uvloop
from aiohttp import web

from extender.kube.api import Obj
from tests.bench import objects
from tests.bench.clusters import raw_cluster
from tests.bench.http_client import HOST, Connection, request
from tests.bench.options import Options
from tests.bench.result import Result
from tests.bench.timing import median, percentile
from tests.kube.fakes import give_list
from webhook.caches import WebhookCaches
from webhook.certs import CertificateManager
from webhook.server import WebhookServer
from webhook.stores import DirectoryStore
from webhook.validate import DEFAULT_RULES

CONNECTIONS: Final = (1, 8)
PODS, PODS_SHORT = 1_000, 200
REVIEWS, REVIEWS_SHORT = 2_000, 400
"""Of one repetition."""
REPETITIONS, REPETITIONS_SHORT = 5, 2
YES: Final = orjson.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "437f8587-e706-427b-a854-3e26f08d4475", "allowed": True},
    }
)


@dataclass(frozen=True, slots=True)
class Load:
    """What one repetition came to: ``waits_s`` is of each review, ``cpu_s`` of server and clients
    together.
    """

    elapsed_s: float
    cpu_s: float
    waits_s: list[float]

    @property
    def per_second(self) -> float:
        """Reviews."""
        return len(self.waits_s) / self.elapsed_s

    @property
    def each_cpu_s(self) -> float:
        """Of one review."""
        return self.cpu_s / len(self.waits_s)


def bench(options: Options) -> Iterator[Result]:
    """A line for each sort of review and number of connections."""
    found = _bench(options)

    async def next_one() -> Result | None:
        return await anext(found, None)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while (result := runner.run(next_one())) is not None:
            yield result


async def _bench(options: Options) -> AsyncIterator[Result]:
    pods = PODS_SHORT if options.short else PODS
    count = REVIEWS_SHORT if options.short else REVIEWS
    with tempfile.TemporaryDirectory() as directory:
        manager = CertificateManager(DirectoryStore(Path(directory)), (HOST,), now=time.time)
        bundle = await manager.ensure()
        client = ssl.create_default_context(cadata=bundle.ca_pem.decode())
        async with (
            webhook(filled_caches(pods), manager.context) as ours,
            no_op(manager.context) as peer,
        ):
            for path, body in reviews(pods).items():
                for connections in CONNECTIONS:
                    measured = []
                    for _ in range(REPETITIONS_SHORT if options.short else REPETITIONS):
                        one = await load(
                            client, ours, path, body, connections=connections, reviews=count
                        )
                        other = await load(
                            client, peer, path, body, connections=connections, reviews=count
                        )
                        measured.append((one, other))
                    yield result_of(path, connections, pods, measured)


def result_of(path: str, connections: int, pods: int, measured: list[tuple[Load, Load]]) -> Result:
    """One line."""
    best = max((one for one, _ in measured), key=lambda one: one.per_second)
    peer = max((other for _, other in measured), key=lambda one: one.per_second)
    waits_s = [wait_s for one, _ in measured for wait_s in one.waits_s]
    peer_waits_s = [wait_s for _, other in measured for wait_s in other.waits_s]
    return Result(
        "webhook",
        {"path": path, "connections": connections, "vpods": pods * 2},
        {
            "reviewsPerSecond": round(best.per_second, 1),
            "p50Milliseconds": round(percentile(waits_s, 50) * 1e3, 3),
            "p99Milliseconds": round(percentile(waits_s, 99) * 1e3, 3),
            "cpuMicrosecondsPerReview": round(min(one.each_cpu_s for one, _ in measured) * 1e6, 1),
            "noOpReviewsPerSecond": round(peer.per_second, 1),
            "noOpP99Milliseconds": round(percentile(peer_waits_s, 99) * 1e3, 3),
            "noOpRatio": round(
                median([one.each_cpu_s / other.each_cpu_s for one, other in measured]), 3
            ),
            "repetitions": len(measured),
        },
    )


def filled_caches(pods: int) -> WebhookCaches:
    """What the webhook knows of a cluster in which every vpod is placed."""
    raw, caches = raw_cluster(pods, placed=pods * 2), WebhookCaches()
    version = objects.next_version()
    give_list(caches.pools, raw.pools, version)
    give_list(caches.vpods, raw.vpods, version)
    give_list(caches.namespaces, raw.namespaces, version)
    return caches


def reviews(pods: int) -> dict[str, bytes]:
    """Path -> a review that is allowed: an adapter pod that comes back, and a vpod that grows."""
    pod = objects.pod(pods // 2, "")
    del pod["metadata"]["annotations"], pod["spec"]["schedulerName"], pod["status"]
    pod["spec"]["containers"][0]["resources"] = {}
    old, new = (objects.vpod(1, vreplicas) for vreplicas in (8, 12))
    return {
        "/mutate": _review(pod, None, "", "pods", "statefulset-controller"),
        "/validate": _review(new, old, "vreplica.dev", "vpods", "generic-garbage-collector"),
    }


def _review(new: Obj, old: Obj | None, group: str, resource: str, account: str) -> bytes:
    kinds = {"pods": ("v1", "Pod"), "vpods": ("v1alpha1", "VPod")}
    version, kind = kinds[resource]
    api_version = f"{group}/{version}" if group else version
    asked = {
        "uid": "3f939a58-4f14-425d-b198-80df05ceb394",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource},
        "name": new["metadata"]["name"],
        "namespace": new["metadata"]["namespace"],
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {
            "username": f"system:serviceaccount:kube-system:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": {"apiVersion": api_version, "kind": kind, **new},
        "oldObject": {"apiVersion": api_version, "kind": kind, **old} if old else None,
        "dryRun": False,
        "options": None,
    }
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    )


# -- servers ---------------------------------------------------------------------------------------


@asynccontextmanager
async def webhook(caches: WebhookCaches, tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """The webhook's server; its port."""
    server = WebhookServer(caches, DEFAULT_RULES, tls=tls)
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


@asynccontextmanager
async def no_op(tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """An aiohttp server that reads each review and allows it; its port."""

    async def allow(http: web.Request) -> web.Response:
        await http.read()
        return web.Response(body=YES, content_type="application/json")

    app = web.Application()
    app.router.add_post("/{any}", allow)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


# -- clients ---------------------------------------------------------------------------------------


async def load(
    tls: ssl.SSLContext | None, port: int, path: str, body: bytes, *, connections: int, reviews: int
) -> Load:
    """Send ``reviews`` over ``connections``, each one after the answer to the one before. Raises
    where one is not allowed.
    """
    opened = [await Connection.open(port, tls) for _ in range(connections)]
    message = request(f"{path}?timeout=3s", body)
    waits_s: list[float] = []

    async def send(connection: Connection) -> None:
        for _ in range(reviews // connections):
            started = time.perf_counter()
            answer = await connection.post(message)
            waits_s.append(time.perf_counter() - started)
            if b'"allowed":true' not in answer.replace(b" ", b""):
                raise AssertionError(f"{path} was not allowed: {answer.decode()}")

    started, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for connection in opened:
            tasks.create_task(send(connection))
    cpu_s, elapsed_s = time.process_time() - cpu, time.perf_counter() - started
    for connection in opened:
        connection.close()
    return Load(elapsed_s, cpu_s, waits_s)
