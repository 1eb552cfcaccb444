"""Three replicas race through changes of authority, one request to the API server at a time, and
what they serve is always taken.

Replicas are stopped between any two requests, for weeks, killed and started again; their clocks and
those of the API servers differ by up to half an hour; keys are lost. At every moment each
certificate that a replica serves is verified, as an API server would, with the caBundle of that
moment and with each that an API server may still have.
"""

import asyncio
import base64
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.kube.api import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Obj, Resource
from tests.webhook.authorities import HOSTS, NOW, fingerprints, is_verified
from tests.webhook.builders import ObjectsApi
from tests.webhook.test_registration import a_configuration
from webhook.certs import CertificateManager
from webhook.publication import PUBLISHED_BEFORE_USE_S
from webhook.registration import Registration
from webhook.rotation import Bundle, is_usable, next_step
from webhook.stores import SecretStore
from webhook.upkeep import Upkeep

DAY_S = 86_400.0
SKEW_S = 1800.0
API_SERVER_BEHIND_S = PUBLISHED_BEFORE_USE_S
"""How old the configuration may be that an API server goes by."""
STUCK_DAYS_MAX = 20.0
"""How long a replica may get nothing done. It renews 30 days before the end."""
SECRET = ("ns", "certificate")
REPLICAS = range(3)
PARTS_THAT_MAY_BE_LOST = (
    ("ca.key",),
    ("next-ca.key",),
    ("tls.key",),
    ("tls.crt", "tls.key"),
    ("ca.key", "next-ca.key"),
    ("replaced.crt",),
)


class Server(ObjectsApi):
    """Remembers which caBundles each configuration has had, and from when, oldest first."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self.published: dict[str, list[tuple[float, bytes]]] = {}

    def put(self, resource: Resource, obj: Obj) -> None:
        super().put(resource, obj)
        for hook in obj.get("webhooks", ()):
            pem = base64.b64decode(hook["clientConfig"].get("caBundle", ""))
            self.published.setdefault(resource.kind, []).append((self._now_s(), pem))

    def in_use(self) -> set[bytes]:
        """Every caBundle that an API server may go by now."""
        found = set[bytes]()
        for published in self.published.values():
            ends = [since for since, _ in published[1:]] + [float("inf")]
            oldest = self._now_s() - API_SERVER_BEHIND_S
            found |= {pem for (_, pem), end in zip(published, ends, strict=True) if end > oldest}
        return found


class Gated(ObjectsApi):
    """A replica's way to the API server: every request waits until it is let through."""

    def __init__(self, server: ObjectsApi) -> None:
        super().__init__()
        self._server = server
        self.waiting = asyncio.Event()
        self.permits = asyncio.Semaphore(0)

    async def _through(
        self, request: Callable[..., Coroutine[Any, Any, Obj]], *args: Any, **more: Any
    ) -> Obj:
        self.waiting.set()
        await self.permits.acquire()
        self.waiting.clear()
        return await request(*args, **more)

    async def get(self, *args, **more):
        return await self._through(self._server.get, *args, **more)

    async def create(self, *args, **more):
        return await self._through(self._server.create, *args, **more)

    async def update(self, *args, **more):
        return await self._through(self._server.update, *args, **more)

    async def patch(self, *args, **more):
        return await self._through(self._server.patch, *args, **more)


class Replica:
    """One webhook's upkeep, which goes on when it is told to."""

    def __init__(self, world: "Rotating", number: int) -> None:
        self.api = Gated(world.api)
        skew_s = SKEW_S * (number - 1)
        self.manager = CertificateManager(
            SecretStore(self.api, *SECRET),
            HOSTS,
            now=lambda: world.now_s + skew_s,
            early=number / 2,
        )
        registration = Registration(self.api, monotonic=lambda: world.now_s)
        self._upkeep = Upkeep(
            self.manager, registration, rng=random.Random(number), now=lambda: world.now_s + skew_s
        )
        self._task: asyncio.Task[bool] | None = None
        self.is_stuck = False
        self.done_at_s = world.now_s
        self._world = world

    async def advance(self) -> None:
        """One request further; a round is begun if there is none."""
        if self._task is None:
            self._task = asyncio.create_task(self._upkeep.round())
            await self._until_it_waits(self._task)
        self.api.permits.release()
        self.api.waiting.clear()
        await self._until_it_waits(self._task)
        self._world.what_is_served_is_taken()

    async def _until_it_waits(self, task: asyncio.Task[bool]) -> None:
        waiting = asyncio.create_task(self.api.waiting.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
            self._task = None
            self.done_at_s = self._world.now_s

    async def finish(self) -> None:
        """To the end of the round."""
        await self.advance()
        while self._task is not None:
            await self.advance()

    async def kill(self) -> None:
        """Wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None


class Rotating(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.now_s = NOW
        self.api = Server(lambda: self.now_s)
        for resource, path in ((MUTATING_WEBHOOKS, "/mutate"), (VALIDATING_WEBHOOKS, "/validate")):
            self.api.put(resource, a_configuration(path))
        self.replicas: list[Replica] = []
        self.is_installed = False

    @initialize()
    def installed(self) -> None:
        self.replicas = [self.runner.run(self._started(number)) for number in REPLICAS]
        for _ in range(2):
            self._rounds()
            self.now_s += API_SERVER_BEHIND_S + 1
        self._rounds()
        self.is_installed = True

    async def _started(self, number: int) -> Replica:
        return Replica(self, number)

    def _rounds(self) -> None:
        for replica in self.replicas:
            if not replica.is_stuck:
                self.runner.run(replica.finish())

    @rule(number=st.sampled_from(REPLICAS), requests=st.integers(1, 6))
    def one_goes_on(self, number: int, requests: int) -> None:
        for _ in range(requests):
            self.runner.run(self.replicas[number].advance())

    @rule(number=st.sampled_from(REPLICAS))
    def one_is_killed_and_starts_again(self, number: int) -> None:
        self.runner.run(self.replicas[number].kill())
        self.replicas[number] = self.runner.run(self._started(number))

    @rule(number=st.sampled_from(REPLICAS), is_stuck=st.booleans())
    def one_gets_stuck_or_free(self, number: int, is_stuck: bool) -> None:
        self.replicas[number].is_stuck = is_stuck

    @rule(seconds=st.sampled_from([1.0, 60.0, API_SERVER_BEHIND_S]))
    def moments_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(days=st.sampled_from([1.0, 7.0, 15.0]))
    def days_pass(self, days: float) -> None:
        self._rounds()
        for number, replica in enumerate(self.replicas):
            if self.now_s + days * DAY_S - replica.done_at_s > STUCK_DAYS_MAX * DAY_S:
                self.one_is_killed_and_starts_again(number)
        self.now_s += days * DAY_S
        self._rounds()

    @precondition(lambda self: self.is_settled())
    @rule(parts=st.sampled_from(PARTS_THAT_MAY_BE_LOST))
    def parts_are_lost(self, parts: tuple[str, ...]) -> None:
        secret = self.api.named(SECRETS, *SECRET)
        data = {name: content for name, content in secret["data"].items() if name not in parts}
        self.api.put(SECRETS, {**secret, "data": data})

    @precondition(lambda self: self.is_settled())
    @rule(junk=st.binary(max_size=40))
    def junk_is_added_to_the_authorities(self, junk: bytes) -> None:
        secret = self.api.named(SECRETS, *SECRET)
        content = base64.b64decode(secret["data"]["ca.crt"]) + junk
        self.api.put(
            SECRETS,
            {**secret, "data": {**secret["data"], "ca.crt": base64.b64encode(content).decode()}},
        )

    def stored(self) -> Bundle:
        data = self.api.named(SECRETS, *SECRET)["data"]
        bundle = Bundle.from_files(
            {name: base64.b64decode(content) for name, content in data.items()}
        )
        assert bundle is not None
        return bundle

    def is_settled(self) -> bool:
        """Nothing is left to do, and every API server trusts all that is stored: what is lost now
        is the first that is.
        """
        bundle = self.stored()
        known = frozenset.intersection(*(fingerprints(pem) for pem in self.api.in_use()))
        return (
            next_step(bundle, HOSTS, now_s=self.now_s) is None
            and fingerprints(bundle.ca_pem) <= known
        )

    @invariant()
    def what_is_served_is_taken(self) -> None:
        if not self.is_installed:
            return
        for replica in self.replicas:
            for pem in self.api.in_use():
                if served := replica.manager.served_pem:
                    for skew_s in (-SKEW_S, SKEW_S):
                        assert is_verified(served, pem, self.now_s, skew_s)

    def teardown(self) -> None:
        for replica in self.replicas:
            self.runner.run(replica.kill())
        for replica in self.replicas:
            replica.is_stuck = False
        for _ in range(3):
            self.now_s += API_SERVER_BEHIND_S
            self._rounds()
        bundle = self.stored()
        assert is_usable(bundle, HOSTS, now_s=self.now_s)
        assert (
            next_step(bundle, HOSTS, now_s=self.now_s, published=fingerprints(bundle.ca_pem))
            is None
        )
        assert {replica.manager.served_pem for replica in self.replicas} == {bundle.cert_pem}
        self.runner.close()


TestRotating = pytest.mark.slow(pytest.mark.timeout(120)(Rotating.TestCase))
TestRotating.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
