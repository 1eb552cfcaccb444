"""The endpoints for people: /v1/explain, /v1/plan, /v1/overview, /v1/decisions, /v1/stream, as
whole requests without a socket.

Of a GET the input is its query, and header lines after it; of /v1/plan it is the body, or header
lines, an empty line and the body. Promises: a status that is documented, errors that are short and,
where they are JSON, ``{"error": text}``; answers that have what the page and the commands read of
them; nothing is left open and the state stays as it was.
"""

import asyncio
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from extender.model.errors import VReplicaError
from extender.whatif.recording.entries import Header, Synced
from extender.whatif.recording.lines import line_from
from extender.whatif.request import FIELDS
from tests.fuzz.answers_scene import JOURNAL, AnswersScene
from tests.fuzz.extender_scene import VerbTarget
from tests.fuzz.findings import Broken, general
from tests.fuzz.made_request import Answer, InlineExecutor, ask
from tests.support.builders import NS, POOL

ERROR_BYTES_MAX: Final = 2 * 1024
_QUERY_WORDS: Final = (
    "pool=",
    "vpod=",
    "pod=",
    "since=",
    "journal=",
    "wait=",
    "&",
    "%2F",
    "%00",
    "%ff",
    "%ed%a0%80",
    "%",
    "+",
    ";",
    "=",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "%D9%A3",
    "1_0",
    POOL,
    JOURNAL,
    "tenant/heavy",
    "tenant/many",
    f"{NS}/dispatcher-1",
    "\r\nHost: a.example",
    "\r\nHost: [::1]:1",
    "\r\nHost: ",
    "\r\nSec-Fetch-Site: cross-site",
    "\r\nSec-Fetch-Site: same-origin",
    "\r\nSec-Fetch-Mode: navigate",
    "\r\nAccept-Encoding: br",
    "\r\nContent-Length: 5",
    "\r\nTransfer-Encoding: chunked",
    "\r\nRange: bytes=0-1",
    "\r\nIf-None-Match: *",
    "\r\nLast-Event-ID: 9",
)


class AnswersTarget(VerbTarget):
    """What the five share."""

    path = ""
    statuses: frozenset[int]
    leave_after = b""
    """The client leaves with the write that has this in it."""

    async def open(self) -> None:
        """See Target."""
        await super().open()
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        self.scene = AnswersScene(self)
        self.app = web.Application()
        for add_routes in self.scene.answers.routes:
            add_routes(self.app)
        self.app.freeze()
        self.words = (*self.words, *_QUERY_WORDS)

    def request(self, data: bytes) -> bytes:
        """The bytes of a whole request."""
        query, _, headers = data.partition(b"\r\n")
        host = b"" if b"host:" in headers.lower() else b"Host: 127.0.0.1:10261\r\n"
        return b"GET %b?%b HTTP/1.1\r\n%b%b\r\n\r\n" % (self.path.encode(), query, host, headers)

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            answer = await ask(self.app, self.request(data), leave_after=self.leave_after)
        except (HttpProcessingError, web.RequestPayloadError) as error:
            return f"{type(error).__name__} {general(str(error).partition(':')[0])}"
        if answer is None:
            return "no request"
        if answer.status not in self.statuses:
            raise Broken(f"status {answer.status} is not documented: {answer.body[:200]!r}")
        if answer.status == 200:
            return f"200 {self.told(answer, data)}"
        return f"Refused {answer.status} {_error(answer)}"

    def told(self, answer: Answer, data: bytes) -> str:
        """A good answer in short. Raises Broken where it is none."""
        raise NotImplementedError

    async def check(self) -> None:
        """See Target."""
        await super().check()
        self.scene.check()

    async def close(self) -> None:
        """See Target."""
        self.scene.close()


def _error(answer: Answer) -> str:
    if len(answer.body) > ERROR_BYTES_MAX:
        raise Broken(f"a long error: {answer.body[:25]!r}... of {len(answer.body)} bytes")
    text = answer.body.decode()
    if answer.content_type == "application/json":
        document = orjson.loads(text)
        if document.keys() != {"error"} or not isinstance(document["error"], str):
            raise Broken(f"no error: {text[:200]!r}")
        text = document["error"]
    return general(_without_values(text))


def _without_values(text: str) -> str:
    """What is wrong, and with which field, without the input's own words: ``general`` sees through
    quotes alone.
    """
    text = text.partition(", not ")[0]
    for problem in (
        " is not NAMESPACE/NAME",
        " does not exist",
        " is no pod, node",
        "is not known",
        "is there already",
    ):
        before, found, _ = text.partition(problem)
        if found:
            field = next((name for name in FIELDS if before.startswith(f"plan: {name}")), "KEY")
            return f"{field} {found.strip()}"
    return text


def _object(answer: Answer, *keys: str) -> dict[str, Any]:
    """The object of an answer that has at least these keys."""
    document = orjson.loads(answer.body)
    if (
        answer.content_type != "application/json"
        or not isinstance(document, dict)
        or not document.keys() >= {*keys}
    ):
        raise Broken(f"not what it should be: {answer.content_type} {answer.body[:200]!r}")
    return document


class ExplainQueryTarget(AnswersTarget):
    """``GET /v1/explain``."""

    path = "/v1/explain"
    structural = 0.0
    statuses = frozenset({200, 400, 404})

    def make_seeds(self) -> None:
        """See VerbTarget."""
        self.seeds = [
            b"vpod=tenant/a",
            b"vpod=tenant%2Fheavy",
            b"vpod=tenant%2Fmany",
            b"pod=knative-eventing%2Fdispatcher-0",
            b"pod=knative-eventing/dispatcher-1\r\nAccept: */*",
            b"vpod=tenant/none",
            b"pod=knative-eventing%2Fdispatcher-9",
            b"vpod=tenant/a@brokers.x.dev",
            b"vpod=t/a&pod=t/b",
            b"vpod=",
            b"",
        ]

    def told(self, answer: Answer, data: bytes) -> str:
        """See AnswersTarget."""
        found = _object(answer, "kind", "answeredBy", "leader", "fixes")
        if found["kind"] == "Pod":
            return f"Pod {len(found['carries'])}"
        if found["left"] < 0 or any(fix["left"] < 0 for fix in found["fixes"]):
            raise Broken(f"less than nothing is left: {answer.body[:200]!r}")
        return general(f"{found['kind']} {len(found['fixes'])} {found['outcome']}")


class PlanRequestTarget(AnswersTarget):
    """``POST /v1/plan``."""

    path = "/v1/plan"
    statuses = frozenset({200, 400, 404, 413, 415, 504})
    """504: what 2,147,483,647 vreplicas need, with growth, is not found within 10 s."""
    inputs_share = 0.25
    slow_s = 2.0

    def make_seeds(self) -> None:
        """See VerbTarget."""
        added = [{"namespace": "t", "name": "x", "vreplicas": 8, "slotsPerVReplica": 2}]
        self.seeds = [
            orjson.dumps({"pool": POOL, "drain": ["node/node-0"]}),
            orjson.dumps(
                {
                    "pool": POOL,
                    "drain": ["pod/dispatcher-1", f"pod/{NS}/dispatcher-2"],
                    "compact": True,
                }
            ),
            orjson.dumps({"fail": ["zone/z1"], "autoscale": True}),
            orjson.dumps(
                {
                    "set": {"slotsPerPod": 22, "minPods": 1, "maxPods": 4, "minPodsPerVPod": 2},
                    "profile": "ha",
                }
            ),
            orjson.dumps({"pool": POOL, "addVPods": added, "autoscale": True}),
            orjson.dumps({"pool": POOL, "addTenants": [{"name": "new", "slots": 8}]}),
            orjson.dumps({"pool": "t/other"}),
            b"{}",
            b"Content-Type: text/plain\r\n\r\n{}",
            b'Content-Type: application/json; charset=utf-8\r\n\r\n{"drain":["node-1"]}',
            b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n\r\n{}",
        ]

    def request(self, data: bytes) -> bytes:
        """See AnswersTarget."""
        head, body = b"Content-Type: application/json", data
        if data.startswith(b"Content-"):
            head, _, body = data.partition(b"\r\n\r\n")
        return (
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:10261\r\nContent-Length: %d\r\n%b\r\n\r\n%b"
            % (self.path.encode(), len(body), head, body)
        )

    def told(self, answer: Answer, data: bytes) -> str:
        """See AnswersTarget."""
        found = _object(answer, "summary", "notes", "vpods", "pools", "answeredBy")
        summary = found["summary"]
        if any(value < 0 for value in summary.values() if isinstance(value, int)):
            raise Broken(f"less than nothing: {summary}")
        waits = min(summary["unplacedAfter"], 1)
        return general(
            f"{min(len(found['vpods']), 3)} vpods, {waits} waits, "
            f"{' '.join(map(str, found['notes']))}"
        )


class OverviewRequestTarget(AnswersTarget):
    """``GET /v1/overview``, which asks for nothing: whatever comes with it changes nothing."""

    path = "/v1/overview"
    structural = 0.0
    statuses = frozenset({200})

    def make_seeds(self) -> None:
        """See VerbTarget."""
        self.seeds = [b"", b"pool=knative-eventing%2Fdispatcher", b"\r\nAccept: application/json"]

    def told(self, answer: Answer, data: bytes) -> str:
        """See AnswersTarget."""
        state = _object(answer, "at", "identity", "leader", "leading", "counters", "pools")
        return f"{len(state['pools'])}"


class DecisionsQueryTarget(AnswersTarget):
    """``GET /v1/decisions``, while a recording goes on."""

    path = "/v1/decisions"
    structural = 0.0
    statuses = frozenset({200, 400, 410})

    def make_seeds(self) -> None:
        """See VerbTarget."""
        journal = JOURNAL.encode()
        self.seeds = [
            b"",
            b"since=0&journal=" + journal,
            b"since=2&wait=0.5&journal=" + journal,
            b"since=-1&wait=nan&journal=" + journal,
            b"since=99&journal=" + journal,
            b"since=0&journal=gone-1",
            b"since=x",
            b"since=1&wait=1e3&journal=" + journal,
        ]

    def told(self, answer: Answer, data: bytes) -> str:
        """See AnswersTarget."""
        lines = answer.body.splitlines()
        try:
            first, last = (line_from(orjson.loads(lines[at]), "a line") for at in (0, -1))
        except (VReplicaError, orjson.JSONDecodeError) as error:
            raise Broken(f"a line that is none: {error}") from error
        if not isinstance(last, Synced):
            raise Broken(f"no end: {lines[-1][:200]!r}")
        return f"{'all' if isinstance(first, Header) else 'after'} {min(len(lines), 5)}"


class StreamQueryTarget(AnswersTarget):
    """``GET /v1/stream`` up to its snapshot, with which the client leaves."""

    path = "/v1/stream"
    structural = 0.0
    statuses = frozenset({200, 400, 403, 421})
    leave_after = b"\n\nevent: snapshot"

    def make_seeds(self) -> None:
        """See VerbTarget."""
        self.seeds = [
            b"pool=knative-eventing%2Fdispatcher",
            b"pool=knative-eventing/dispatcher\r\nSec-Fetch-Site: same-origin",
            b"",
            b"pool=t/none",
            b"pool=" + b"x" * 400,
            b"pool=a\r\nSec-Fetch-Site: cross-site",
            b"\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate",
            b"\r\nHost: page.example:10261",
            b"\r\nHost: [::1]:10261",
            b"pool=x&pool=y\r\nHost: LOCALHOST",
        ]

    def told(self, answer: Answer, data: bytes) -> str:
        """See AnswersTarget."""
        head, _, event = answer.body.partition(self.leave_after + b"\ndata: ")
        if (
            answer.content_type != "text/event-stream"
            or not head.startswith(b"retry: ")
            or b"\n" in event[:-2]
        ):
            raise Broken(f"no stream: {answer.content_type} {answer.body[:200]!r}")
        told = orjson.loads(event)
        return " ".join(f"{name} {min(len(records), 4)}" for name, records in sorted(told.items()))
