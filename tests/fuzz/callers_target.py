"""The listener for controllers: whole requests as bytes over a loopback socket, with tokens.

Promises, beside those of ``socket_targets``: nothing is served without the token of an allowed
account, and no answer's head has a token.
"""

import asyncio
from dataclasses import replace
from typing import Final

import orjson

from extender.config.model import Config, ScheduleConfig, ServerConfig
from extender.kube.api import TOKEN_REVIEWS, Obj, Resource
from extender.kube.forwarding import ForwardingApi
from extender.kube.token_review import TokenReviews
from extender.service.http.describe import state_steps
from extender.service.http.health import Health
from extender.service.http.schedule_server import ScheduleServer
from tests.fuzz.extender_scene import VerbTarget
from tests.fuzz.extender_targets import schedule_args, schedule_verb
from tests.fuzz.findings import Broken
from tests.fuzz.socket_targets import (
    ANSWER_S,
    GOOD_S,
    HTTP_WORDS,
    STATUSES,
    Sockets,
    http,
    http_outcome,
)
from tests.support.builders import nothing_decided

CALLERS_STATUSES: Final = frozenset({401, 403, 409, 412})
KNOWN_TOKEN: Final = "known.token"
OTHERS_TOKEN: Final = "others.token"


class CallersSocketTarget(VerbTarget):
    """The listener for controllers, plain as for tests: a known token, others, and what is none.

    Only the handshake of TLS is left out: the middlewares and routes are those of the service.
    """

    structural = 0.0
    inputs_share = 0.05
    slow_s = 1.0

    async def open(self) -> None:
        """See Target."""
        await super().open()
        config = ScheduleConfig(host="127.0.0.1", allowed_service_accounts=("controllers/caller",))
        reviews = TokenReviews(
            _Reviewing(self.world.cluster),
            audience=config.audience,
            clock=asyncio.get_running_loop().time,
        )
        # An outcome must not depend on how many tokens came before.
        reviews._new.change(0.0, 1)
        self.verb = schedule_verb(self)
        self.server = ScheduleServer(
            replace(Config(), schedule=config, server=ServerConfig(deadline_s=2.0)),
            self.verb.schedule,
            state_steps=lambda query: state_steps(self.caches.state, nothing_decided, query),
            reviews=reviews,
            health=Health(list),
            metrics=self.world.metrics,
        )
        self.digest = self.caches.state.digest()
        port = await self.server.listener.http.start(
            self.server._application(), "127.0.0.1", 0, tls=None
        )
        self.sockets = Sockets(port)

    def make_seeds(self) -> None:
        """See VerbTarget."""
        allowed = {"Authorization": f"Bearer {KNOWN_TOKEN}"}
        again = orjson.loads(schedule_args())
        again["vpod"]["resourceVersion"] = "17"
        self.seeds = [
            http("/v1/schedule", schedule_args(), **allowed),
            http("/v1/schedule", orjson.dumps(again), **allowed, Expect="100-continue"),
            http("/v1/schedule", schedule_args(), Authorization="Bearer unknown"),
            http("/v1/schedule", schedule_args(), Authorization=f"Bearer {OTHERS_TOKEN}"),
            http("/v1/schedule", schedule_args()),
            http("/v1/schedule", schedule_args(), Authorization=f"Basic {KNOWN_TOKEN}"),
            http("/state.json?pool=knative-eventing%2Fdispatcher", method="GET", **allowed)
            + http("/state.json?vpod=tenant%2Fa", method="GET", **allowed),
            http("/v1/bind", b"{}", **allowed),
        ]
        self.words = (
            *HTTP_WORDS,
            "Authorization: ",
            f"Authorization: Bearer {KNOWN_TOKEN}\r\n",
            f"Bearer {OTHERS_TOKEN}",
            "bearer  ",
            KNOWN_TOKEN * 700,
            "Bearer \xe9",
            '"resourceVersion":"18446744073709551616"',
            "?vpod=tenant/a",
            "/state.json",
        )

    async def run(self, data: bytes) -> str:
        """See Target."""
        self.verb._placer._turn = 0  # type: ignore[attr-defined] # the outcome is the input's alone
        answer = await self.sockets.exchange(data, wait_s=ANSWER_S)
        outcome = http_outcome(answer, STATUSES | CALLERS_STATUSES)
        if answer.startswith(b"HTTP/1.1 200") and KNOWN_TOKEN.encode() not in data:
            raise Broken(f"served without the token: {answer[:200]!r}")
        if KNOWN_TOKEN.encode() in answer.partition(b"\r\n\r\n")[0]:
            raise Broken("the token is in the answer's head")
        return outcome

    async def check(self) -> None:
        """See Target."""
        token = {"Authorization": f"Bearer {KNOWN_TOKEN}"}
        request = http("/state.json?vpod=tenant%2Fa", method="GET", **token)
        good = await self.sockets.exchange(request, wait_s=GOOD_S)
        if not good.startswith(b"HTTP/1.1 200"):
            raise Broken(f"a good request is not answered: {good[:200]!r}")
        await super().check()

    async def close(self) -> None:
        """See Target."""
        await self.server.stop()


class _Reviewing(ForwardingApi):
    """Reviews two tokens."""

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        assert resource == TOKEN_REVIEWS
        users = {KNOWN_TOKEN: "controllers:caller", OTHERS_TOKEN: "tenant:default"}
        if (user := users.get(obj["spec"]["token"])) is None:
            return {"status": {"authenticated": False}}
        return {
            "status": {
                "authenticated": True,
                "audiences": obj["spec"]["audiences"],
                "user": {"username": f"system:serviceaccount:{user}"},
            }
        }
