"""The two sides: a kube-apiserver with etcd and nothing else, and embedded clusters without
controllers.

No controller runs on either: what a sequence sees is what it did itself, and what the API server
adds on its own.
"""

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from extender.kube.api import CRDS, NAMESPACES, Api, Obj
from extender.kube.client import KubeApi
from extender.lab.apiserver.cluster import Cluster
from tests.e2e.backend import apply_objects
from tests.e2e.build import Binaries
from tests.e2e.controlplane import ControlPlane, Settings
from tests.e2e.objects import MANIFESTS, load

REQUESTS_A_SECOND_MAX = 100_000
"""The client's own limit must not slow this down."""


class ApiServerAlone(ControlPlane):
    """etcd and kube-apiserver, without controllers: they would write between two operations of a
    sequence.
    """

    def __init__(self, binaries: Binaries, work_dir: Path) -> None:
        super().__init__(binaries, work_dir, Settings(audit=False))

    async def start(self) -> None:
        """Returns when the API server is ready."""
        try:
            await self._start_etcd()
            await self._start_apiserver()
        except BaseException:
            self.stop()
            raise


@cache
def definitions() -> tuple[Obj, ...]:
    """The shipped CustomResourceDefinitions; to be read, not changed."""
    return tuple(load(MANIFESTS / "crds"))


@asynccontextmanager
async def real_api(binaries: Binaries, work_dir: Path) -> AsyncIterator[KubeApi]:
    """A real API server that serves our kinds, through the service's own client."""
    server = ApiServerAlone(binaries, work_dir)
    await server.start()
    try:
        async with await KubeApi.connect(
            kubeconfig=str(server.kubeconfig),
            qps=REQUESTS_A_SECOND_MAX,
            burst=REQUESTS_A_SECOND_MAX,
        ) as api:
            await apply_objects(api, definitions(), ())
            yield api
    finally:
        server.stop()


async def embedded_api(seed: int) -> Cluster:
    """An embedded cluster that serves our kinds, on the wall clock as the real one is."""
    cluster = Cluster(now=time.time, rng=random.Random(seed))
    for definition in definitions():
        await cluster.create(CRDS, "", definition)
    return cluster


async def new_namespace(api: Api, name: str) -> None:
    """The namespace that a sequence runs in."""
    await api.create(NAMESPACES, "", {"metadata": {"name": name, "labels": {"sequence": name}}})
