"""A hundred changes of authority while webhooks are called without a pause: not one call is lost.

Clients do what the API server does: they verify with the caBundle that they have read from the
webhook configuration and nothing else, and they go by one from before the change until the change
is done. Time is the clock's of the machine, for a TLS client has no other; so a change is ordered
as a person would order it, by taking the authority's key away.
"""

import asyncio
import base64
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import orjson
import pytest

from extender.kube.api import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from tests.webhook.authorities import fingerprints
from tests.webhook.builders import ObjectsApi, a_pod, a_pool_object, caches, review
from tests.webhook.test_registration import NAME, a_configuration
from webhook.certs import CertificateManager
from webhook.publication import PUBLISHED_BEFORE_USE_S
from webhook.registration import Registration
from webhook.server import WebhookServer
from webhook.stores import SecretStore
from webhook.upkeep import Upkeep
from webhook.validate import DEFAULT_RULES

CHANGES = 100
CLIENTS = 2
HOSTS = ("127.0.0.1",)
SECRET = ("ns", "certificate")


class Replica:
    """A webhook that listens, whose rounds of upkeep the test orders."""

    def __init__(self, api: ObjectsApi, clock: list[float]) -> None:
        self.certificates = CertificateManager(SecretStore(api, *SECRET), HOSTS, now=time.time)
        registration = Registration(api, monotonic=lambda: clock[0])
        self.upkeep = Upkeep(self.certificates, registration, rng=random.Random(1), now=time.time)
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = WebhookServer(
            caches(pools=[a_pool_object()]), DEFAULT_RULES, tls=self.certificates.context
        )
        self.port = await server.start("127.0.0.1", 0)
        try:
            yield
        finally:
            await server.stop()


class Caller:
    """An API server: knows the caBundle that it has read last, and calls."""

    def __init__(self, api: ObjectsApi) -> None:
        self._api = api
        self.trusted = ssl.create_default_context()
        self.calls = 0
        self.authorities = set[bytes]()
        self._with_what_was_read = set[int]()
        self._all = asyncio.Event()

    def read(self) -> None:
        hook = self._api.named(MUTATING_WEBHOOKS, "", NAME)["webhooks"][0]
        pem = base64.b64decode(hook["clientConfig"]["caBundle"])
        self.authorities |= fingerprints(pem)
        self.trusted = ssl.create_default_context(cadata=pem.decode())
        self._with_what_was_read.clear()
        self._all.clear()

    async def every_call_began_after_that(self) -> None:
        """A call takes seconds, and an authority is published for minutes before it signs."""
        await self._all.wait()

    def _begins(self, client: int) -> None:
        self._with_what_was_read.add(client)
        if len(self._with_what_was_read) == CLIENTS:
            self._all.set()

    async def call(
        self, session: aiohttp.ClientSession, port: int, trusted: ssl.SSLContext
    ) -> None:
        async with session.post(
            f"https://127.0.0.1:{port}/mutate",
            data=review(a_pod()),
            headers={"Content-Type": "application/json"},
            ssl=trusted,
        ) as reply:
            assert orjson.loads(await reply.read())["response"]["patch"]
        self.calls += 1

    async def keep_calling(self, replicas: list[Replica], stop: asyncio.Event, client: int) -> None:
        """With a new connection, and so a handshake, for every call."""
        rng = random.Random(client)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            while not stop.is_set():
                self._begins(client)
                await self.call(session, rng.choice(replicas).port, self.trusted)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_in_100_changes_of_authority_under_load_no_call_is_lost_and_connections_go_on():
    api, clock, rng = ObjectsApi(), [0.0], random.Random(7)
    for resource, path in ((MUTATING_WEBHOOKS, "/mutate"), (VALIDATING_WEBHOOKS, "/validate")):
        api.put(resource, a_configuration(path))
    replicas, caller, stop = [Replica(api, clock) for _ in range(2)], Caller(api), asyncio.Event()
    for replica in replicas:
        assert await replica.upkeep.round()
    caller.read()
    async with AsyncExitStack() as stack:
        for replica in replicas:
            await stack.enter_async_context(replica.listening())
        kept = await stack.enter_async_context(aiohttp.ClientSession())
        first = caller.trusted
        async with asyncio.TaskGroup() as tasks:
            for client in range(CLIENTS):
                tasks.create_task(caller.keep_calling(replicas, stop, client))
            for _ in range(CHANGES):
                secret = api.named(SECRETS, *SECRET)
                del secret["data"]["ca.key"]
                clock[0] += PUBLISHED_BEFORE_USE_S
                for replica in rng.sample(replicas, 2):
                    assert await replica.upkeep.round()
                    # A connection that began under the first authority, whose certificate is long
                    # gone.
                    await caller.call(kept, replicas[0].port, first)
                caller.read()
                await caller.every_call_began_after_that()
            stop.set()
    assert len(caller.authorities) == CHANGES + 2
    assert caller.calls > 3 * CHANGES
