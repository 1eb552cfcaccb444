"""A service whose listener for adapters is open, and what an adapter sends to it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from extender.config.model import AdaptersConfig, ServingTlsConfig
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION
from extender.service.app import Service
from tests.e2e.processes import free_port
from tests.service.authority import Authority, client_context
from tests.service.http.reviewing import Reviewing
from tests.support.builders import NS
from tests.support.service import World, a_world, until

ACCOUNT = f"system:serviceaccount:{NS}:dispatcher"
"""That all adapter pods share."""
ROUTER = "ingress/router"
"""In allowedServiceAccounts."""
VPOD = "tenant/a"


def user_of(name: str, uid: str, account: str = ACCOUNT) -> dict[str, Any]:
    """What a TokenReview says of a token that is bound to a pod."""
    extra = {
        "authentication.kubernetes.io/pod-name": [name],
        "authentication.kubernetes.io/pod-uid": [uid],
    }
    return {"username": account, "extra": extra}


def token(ordinal: int) -> str:
    """Of an adapter pod."""
    return f"pod-{ordinal}"


@dataclass
class Adapters:
    world: World
    service: Service
    api: Reviewing
    session: aiohttp.ClientSession
    authority: Authority

    @property
    def url(self) -> str:
        server = self.service.adapter_server
        assert server is not None
        return server.url

    def request(
        self, method: str, path: str, bearer: str, **more: Any
    ) -> "aiohttp.client._RequestContextManager":
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        context = client_context(self.authority, None)
        return self.session.request(method, self.url + path, headers=headers, ssl=context, **more)

    async def get(self, path: str, bearer: str) -> tuple[int, str, Mapping[str, str]]:
        async with self.request("GET", path, bearer) as reply:
            return reply.status, await reply.text(), reply.headers

    async def acknowledge(
        self, ordinal: int, *, bearer: str | None = None, **changed: Any
    ) -> tuple[int, str, Mapping[str, str]]:
        """As the adapter of that pod, which serves all that it is told."""
        told = await self.assignment(ordinal)
        body = {"uid": told["uid"], "generation": told["generation"]}
        body |= {"serving": list(told["shares"]), **changed}
        by = token(ordinal) if bearer is None else bearer
        async with self.request("POST", "/v1/acknowledge", by, json=body) as reply:
            return reply.status, await reply.text(), reply.headers

    async def assignment(self, ordinal: int) -> dict[str, Any]:
        """As it is stored; {} if there is none."""
        text = await self.world.annotation(ordinal, ASSIGNMENT_ANNOTATION)
        told: dict[str, Any] = orjson.loads(text or "{}")
        return told

    async def acknowledged(self, ordinal: int) -> dict[str, Any] | None:
        """As it is stored."""
        text = await self.world.annotation(ordinal, ACKNOWLEDGED_ANNOTATION)
        return orjson.loads(text) if text is not None else None

    def metric(self, name: str) -> dict[str, float]:
        """Samples of a metric that are not 0, by what follows its name."""
        start = f"vreplica_scheduler_{name}"
        found = {}
        for line in self.service.metrics.render().decode().splitlines():
            if line.startswith((start + "{", start + " ")):
                labels, _, value = line.removeprefix(start).rpartition(" ")
                if float(value):
                    found[labels] = float(value)
        return found

    async def told(self, ordinal: int, vreplicas: int) -> None:
        """Wait until a pod is told so many vreplicas of ``VPOD``."""

        async def is_so() -> bool:
            shares = (await self.assignment(ordinal)).get("shares", {})
            return bool(shares.get(VPOD, {}).get("vreplicas", 0) == vreplicas)

        await until(is_so, timeout_s=5)


@asynccontextmanager
async def adapters(
    folder: Path, *ordinals: int, vreplicas: int = 4, elect: bool = False, **pool: Any
) -> AsyncIterator[Adapters]:
    """Pods of a pool with spec.handoff (unless ``pool`` says otherwise), and one vpod that is
    placed on them.
    """
    world = await world_of(*ordinals, vreplicas=vreplicas, **pool)
    authority = Authority(folder, "ca")
    async with serving(world, authority, configured(authority), elect=elect) as it:
        yield it


async def world_of(*ordinals: int, vreplicas: int = 4, **pool: Any) -> World:
    """What ``adapters`` is about, with no service yet."""
    pool = {"handoff": {}, "minPods": len(ordinals), "rescheduleAfterSeconds": None, **pool}
    world = await a_world(*ordinals, replicas=len(ordinals), **pool)
    await world.vpod("a", vreplicas)
    api = world.api = Reviewing(world.cluster)
    api.users = {"router": f"system:serviceaccount:{ROUTER.replace('/', ':')}"}
    for ordinal in ordinals:
        await let_in(world, ordinal)
    return world


async def let_in(world: World, ordinal: int) -> None:
    """A pod gets its token."""
    assert isinstance(world.api, Reviewing)
    uid = await world.uid(ordinal)
    world.api.users[token(ordinal)] = user_of(f"dispatcher-{ordinal}", uid)


@asynccontextmanager
async def serving(
    world: World, authority: Authority, config: AdaptersConfig, *, elect: bool = False
) -> AsyncIterator[Adapters]:
    """A service of that world, until the end."""
    assert isinstance(world.api, Reviewing)
    async with (
        world.serving(serve=True, adapters=config, elect=elect) as service,
        aiohttp.ClientSession() as session,
    ):
        yield Adapters(world, service, world.api, session, authority)


def configured(authority: Authority) -> AdaptersConfig:
    cert_file, key_file = authority.issue("serving", "vreplica-adapters.vreplica-system.svc")
    return AdaptersConfig(
        host="127.0.0.1",
        port=free_port(),
        allowed_service_accounts=(ROUTER,),
        tls=ServingTlsConfig(cert_file=cert_file, key_file=key_file),
    )


@asynccontextmanager
async def beside(first: Adapters, folder: Path) -> AsyncIterator[Adapters]:
    """A second replica, which does not lead."""
    authority = Authority(folder, "ca")
    world = first.world
    async with world.serving(
        serve=True, adapters=configured(authority), elect=True, seed=2
    ) as service:
        yield Adapters(world, service, first.api, first.session, authority)
