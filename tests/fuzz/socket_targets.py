"""The HTTP layer: whole requests as bytes over a loopback socket, to the two real servers.
``callers_target`` has the third listener.

What is inside a good request is the business of the other targets; here it is request lines,
headers, lengths, chunks and several requests in one packet. Promises: every answer is HTTP with a
known status, never 5xx but 503 and 504, an answer to a verb is JSON where it is 200, and whatever
came before, a good request is answered after it.
"""

import asyncio
import contextlib
import re
from typing import Final

import orjson

from extender.config.model import ServerConfig
from extender.service.http.describe import state_steps
from extender.service.http.health import Health
from extender.service.http.server import ExtenderServer
from tests.fuzz.answers_scene import JOURNAL, AnswersScene
from tests.fuzz.extender_scene import VerbTarget
from tests.fuzz.extender_targets import schedule_args, schedule_verb
from tests.fuzz.findings import Broken
from tests.fuzz.target import Target
from tests.support.builders import nothing_decided
from tests.support.service import bind_args, filter_args
from tests.webhook.builders import a_namespace, a_pod, a_pool_object, a_vpod_object, caches, review
from webhook.server import WebhookServer
from webhook.validate import DEFAULT_RULES

STATUSES: Final = frozenset({200, 400, 404, 405, 408, 411, 413, 414, 415, 417, 431, 503, 504})
ANSWERS_STATUSES: Final = frozenset({304, 308, 403, 410, 421})
"""More, of the routes for people: a file of the page that has not changed, a journal that has
ended, another site's requests.
"""
ANSWER_S: Final = 0.05
"""How long an answer is waited for: a request that is not whole gets none before its deadline."""
GOOD_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
_HEAD: Final = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")

_JSON: Final = re.compile(rb"(?i)content-type: *application/json[;\r]")
"""Not that of a recording's lines, application/jsonl."""


def http(path: str, body: bytes = b"", /, *, method: str = "POST", **headers: str) -> bytes:
    """One request."""
    fields = {
        "Host": "127.0.0.1",
        "User-Agent": "Go-http-client/1.1",
        "Accept-Encoding": "gzip",
        **headers,
    }
    if method == "POST":
        fields = {"Content-Length": str(len(body)), "Content-Type": "application/json", **fields}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(path: str, body: bytes) -> bytes:
    """One request in two chunks."""
    head = http(path, b"", **{"Transfer-Encoding": "chunked"}).replace(
        b"Content-Length: 0\r\n", b""
    )
    half = len(body) // 2
    return head + b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:], b"")
    )


class Sockets:
    """A server's address, and the exchange of one input with it."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def exchange(self, data: bytes, *, wait_s: float) -> bytes:
        """What comes back for these bytes within ``wait_s``, at the latest once one answer is
        whole.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        try:
            writer.write(data)
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(wait_s):
                    while len(answer) < ANSWER_BYTES_MAX:
                        part = await reader.read(65536)
                        answer += part
                        if not part or _is_whole(_final(answer)):
                            break
        finally:
            writer.transport.abort()
        return _final(answer)


def _final(answer: bytes) -> bytes:
    """An answer without the 100 Continue before it."""
    return answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")


def _is_whole(answer: bytes) -> bool:
    head = _HEAD.match(answer)
    if head is None:
        return False
    length = re.search(rb"(?i)content-length: *([0-9]+)", head[2])
    return length is not None and len(answer) >= head.end() + int(length[1])


def http_outcome(answer: bytes, statuses: frozenset[int] = STATUSES) -> str:
    if not answer:
        return "nothing"
    head = _HEAD.match(answer)
    if head is None:
        raise Broken(f"no HTTP: {answer[:100]!r}")
    status = int(head[1])
    if status not in statuses:
        raise Broken(f"status {status}: {answer[:300]!r}")
    if b"Traceback" in answer:
        raise Broken(f"a traceback: {answer[:300]!r}")
    body = answer[head.end() :]
    if status == 200 and _JSON.search(head[2]) and _is_whole(answer):
        orjson.loads(body[: int(re.search(rb"(?i)content-length: *([0-9]+)", head[2])[1])])  # type: ignore[index]
    words = (
        re.sub(rb"[^A-Za-z ]+", b"", body.partition(b"\n")[0])[:30].decode()
        if status != 200
        else ""
    )
    return f"{status} {words}"


class ExtenderSocketTarget(VerbTarget):
    """The extender's listener: verbs, ``/v1/schedule``, state, metrics, and the routes for people
    as the service adds them.
    """

    structural = 0.0
    inputs_share = 0.05
    slow_s = 1.0

    async def open(self) -> None:
        """See Target."""
        await super().open()

        self.scene = AnswersScene(self)
        self.server = ExtenderServer(
            ServerConfig(port=0, deadline_s=2.0),
            self.verbs,
            health=Health(list),
            metrics=self.world.metrics,
            state_steps=lambda query: state_steps(self.caches.state, nothing_decided, query),
            schedule=schedule_verb(self).schedule,
            questions=self.scene.answers.routes,
        )
        self.digest = self.caches.state.digest()
        await self.server.start()
        self.sockets = Sockets(int(self.server.url.rpartition(":")[2]))

    def make_seeds(self) -> None:
        """See VerbTarget."""
        asked = filter_args(self.pending, ["node-0", "node-9"])
        bind = bind_args(self.pending, "node-9")
        self.seeds = [
            http("/v1/filter", asked),
            chunked("/v1/prioritize", asked),
            http("/v1/bind", bind) + http("/livez", method="GET"),
            http("/v1/bind", bind, Expect="100-continue", Connection="close"),
            http("/state.json?pool=knative-eventing%2Fdispatcher", method="GET"),
            http("/metrics", method="GET"),
            http("/readyz", method="HEAD"),
            http("/v1/preempt", b"{}", **{"Content-Encoding": "gzip"}),
            http("/v1/schedule", schedule_args()),
            http("/v1/explain?vpod=tenant%2Fa", method="GET"),
            http("/v1/explain?pod=knative-eventing/dispatcher-1", method="GET")
            + http("/livez", method="GET"),
            http("/v1/plan", orjson.dumps({"drain": ["node/node-0"], "compact": True})),
            chunked("/v1/plan", orjson.dumps({"set": {"maxPods": 4}, "autoscale": True})),
            http("/v1/overview", method="GET"),
            http("/v1/decisions", method="GET"),
            http(f"/v1/decisions?since=1&wait=1&journal={JOURNAL}", method="GET"),
            http("/v1/decisions", method="HEAD"),
            http("/v1/stream?pool=knative-eventing%2Fdispatcher", method="GET"),
            http("/v1/stream", method="GET", **{"Sec-Fetch-Site": "cross-site"}),
            http("/ui", method="GET", **{"If-None-Match": "*"}),
        ]
        self.words = (*HTTP_WORDS, *_ANSWERS_WORDS)

    async def run(self, data: bytes) -> str:
        """See Target."""
        answer = await self.sockets.exchange(data, wait_s=ANSWER_S)
        outcome = http_outcome(answer, STATUSES | ANSWERS_STATUSES)
        for assumed in self.binder.taken:
            self.binder.revert(assumed)
        self.binder.taken.clear()
        return outcome

    async def check(self) -> None:
        """See Target."""
        for path in ("/livez", "/v1/overview"):
            good = await self.sockets.exchange(http(path, method="GET"), wait_s=GOOD_S)
            if not good.startswith(b"HTTP/1.1 200"):
                raise Broken(f"a good request is not answered: {path}")
        await super().check()

    async def close(self) -> None:
        """See Target."""
        await self.server.stop()
        self.scene.close()


class WebhookSocketTarget(Target):
    """The webhook's listener, plain as for tests."""

    name = "webhook-http"
    structural = 0.0
    inputs_share = 0.05
    slow_s = 1.0

    async def open(self) -> None:
        """See Target."""
        view = caches(
            pools=[a_pool_object()], vpods=[a_vpod_object()], namespaces=[a_namespace("tenant-a")]
        )
        self.server = WebhookServer(view, DEFAULT_RULES, tls=None)
        self.sockets = Sockets(await self.server.start("127.0.0.1", 0))
        body = review(a_pod())
        self.seeds = [
            http("/mutate", body),
            chunked("/validate", body),
            http("/mutate?timeout=3s", body) + http("/readyz", method="GET"),
            http("/metrics", method="GET"),
        ]
        self.words = HTTP_WORDS

    async def run(self, data: bytes) -> str:
        """See Target."""
        return http_outcome(await self.sockets.exchange(data, wait_s=ANSWER_S))

    async def check(self) -> None:
        """See Target."""
        good = await self.sockets.exchange(http("/mutate", review(a_pod())), wait_s=GOOD_S)
        if not good.startswith(b"HTTP/1.1 200"):
            raise Broken("a good request is not answered")

    async def close(self) -> None:
        """See Target."""
        await self.server.stop()


HTTP_WORDS: Final = (
    "Content-Length: 10\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Content-Type: text/plain\r\n",
    "Content-Type: \x00\r\n",
    "Content-Encoding: deflate\r\n",
    "Content-Type: application/json; charset=utf-99\r\n",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "Host: a\r\nHost: b\r\n",
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "GET ",
    "POST ",
    "OPTIONS * ",
    "CONNECT a:1 ",
    "PUT ",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/9.9",
    "http://a/v1/filter",
    "//v1/filter",
    "/v1/../livez",
    "/%2e%2e/",
    "/v1/filter%00",
    "/v1/schedule",
    "?pool=%ff",
    "?" + "a=b&" * 500,
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "5;x=y\r\n",
    "X: " + "a" * 9000 + "\r\n",
    "X: y\r\n" * 200,
    " folded\r\n",
)
_ANSWERS_WORDS: Final = (
    "/v1/explain",
    "/v1/plan",
    "/v1/overview",
    "/v1/decisions",
    "/v1/stream",
    "/ui",
    "/ui/",
    "?vpod=tenant/a",
    "?pool=",
    "&wait=1",
    "?since=0",
    "Sec-Fetch-Site: cross-site\r\n",
    "Sec-Fetch-Mode: navigate\r\n",
    "Host: a.example\r\n",
    "Range: bytes=0-0\r\n",
    "If-None-Match: *\r\n",
    "HEAD ",
)
