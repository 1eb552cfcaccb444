"""``Prometheus``: asks one instant query, and reads its answer as reports of load.

``GET /api/v1/query`` is the HTTP API of Prometheus, and of what speaks like it (Thanos, Mimir,
VictoriaMetrics). GET and not POST: a proxy such as kube-rbac-proxy takes a POST for a right to
create. The answer must be a vector of which each series is about another vpod on another pod.

Every exchange has limits: ``timeoutSeconds`` from the connection to the last byte,
``ANSWER_BYTES_MAX``, and ``SERIES_MAX``, which the server is told too. It is never compressed, so
bytes read are bytes held. No redirect is followed and no proxy of the environment is used: only the
server that the configuration names gets the token. Certificates are verified. ``QueryFailed`` says
what went wrong. Its text has no word of the server and no address: a pool's owner reads it.
``detail`` has those, for the log.
"""

import asyncio
import ssl
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import orjson

from extender.config.load_sources import Labels, LoadSource
from extender.model.errors import VReplicaError
from extender.model.safe_repr import safe_repr
from extender.service.pools.load_reports import Report

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
SERIES_MAX: Final = 50_000
"""A pool of 1,000 pods with 50 vpods on each."""
COMMAS_MAX: Final = 10 * SERIES_MAX
"""A series has one for each label and two more. An answer of many commas takes much memory."""
TOKEN_BYTES_MAX: Final = 16 * 1024
DETAIL_CHARS_MAX: Final = 300
WARNINGS_MAX: Final = 5
"""Of one answer, in the log."""
_PATH: Final = "/api/v1/query"
_OK: Final = 200
_REFUSED: Final = range(400, 500)


class LoadTrouble(StrEnum):
    """Why a pool gets no load from its ``loadSource``: the reason of its condition
    ``LoadUnavailable``, and a label of the metric ``load_queries``.
    """

    UNKNOWN_SOURCE = "UnknownSource"
    """The configuration has no such source."""
    UNREADABLE_FILE = "UnreadableFile"
    """``caFile`` or ``tokenFile`` cannot be used."""
    UNREACHABLE = "Unreachable"
    """No connection, or a certificate that is not trusted."""
    TIMED_OUT = "TimedOut"
    REFUSED = "QueryRefused"
    """Status 400 to 499: the query is wrong, or the token is not allowed."""
    FAILED = "QueryFailed"
    """Any other status, also a redirect."""
    TOO_LARGE = "AnswerTooLarge"
    UNREADABLE_ANSWER = "AnswerUnreadable"
    NO_SERIES = "NoSeries"
    """No series is about a vreplica that the pool has placed."""
    NO_USABLE_VALUE = "NoUsableValue"
    """Some are, and each of them is no number, negative or absurdly large."""


class QueryFailed(VReplicaError):
    """A query has brought no reports. ``detail``: what the server or the system says, for logs."""

    def __init__(self, trouble: LoadTrouble, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.trouble = trouble
        self.text = text
        self.detail = detail[:DETAIL_CHARS_MAX]


class Answer(NamedTuple):
    """``unlabelled``: series without the labels that say what they are about. ``warnings``: what
    the server says of an answer that may lack a part, for logs; "" if nothing.
    """

    reports: list[Report]
    unlabelled: int
    warnings: str = ""


class Prometheus:
    """Asks the server of one source. One call at a time for each pool."""

    def __init__(self, source: LoadSource) -> None:
        self._source = source
        self._context: tuple[tuple[int, ...], ssl.SSLContext] | None = None
        """With the stamp of the file that it is made of."""

    async def ask(self, query: str) -> Answer:
        """The reports that the query brings. Raises QueryFailed."""
        source = self._source
        try:
            async with asyncio.timeout(source.timeout_s):
                context, headers = await asyncio.to_thread(self._credentials)
                body = await self._exchange(query, context, headers)
        except TimeoutError as error:
            raise QueryFailed(
                LoadTrouble.TIMED_OUT, f"no answer within {source.timeout_s:g} s"
            ) from error
        except QueryFailed:
            raise
        except Exception as error:  # whatever a server sends, who asks it must not end
            raise QueryFailed(
                LoadTrouble.UNREACHABLE,
                "the server cannot be reached, or its certificate is not trusted",
                safe_repr(error, DETAIL_CHARS_MAX),
            ) from error
        # Reading 50,000 series takes a quarter of a second.
        return await asyncio.to_thread(reports_of_answer, body, source.labels)

    async def _exchange(
        self, query: str, context: ssl.SSLContext | None, headers: Mapping[str, str]
    ) -> bytes:
        source = self._source
        connector = aiohttp.TCPConnector(ssl=context or True, limit=1, force_close=True)
        parameters = {
            "query": query,
            "timeout": f"{source.timeout_s:g}s",
            "limit": str(SERIES_MAX + 1),
        }
        async with (
            aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
            session.get(
                f"{source.url}{_PATH}", params=parameters, headers=headers, allow_redirects=False
            ) as response,
        ):
            body = await _body(response)
        if response.status != _OK:
            raise _refused(response.status, body)
        return body

    def _credentials(self) -> tuple[ssl.SSLContext | None, dict[str, str]]:
        """Called in a thread: it reads files. Raises QueryFailed."""
        source = self._source
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            context = self._trusted() if source.url.startswith("https:") else None
            if source.token_file:
                headers["Authorization"] = f"Bearer {_token(source.token_file)}"
        except (OSError, ValueError) as error:
            raise QueryFailed(
                LoadTrouble.UNREADABLE_FILE,
                "caFile or tokenFile cannot be used",
                safe_repr(error, DETAIL_CHARS_MAX),
            ) from error
        return context, headers

    def _trusted(self) -> ssl.SSLContext:
        """A context that verifies certificates. It is made again once the file is replaced."""
        name = self._source.ca_file
        stamp: tuple[int, ...] = ()
        if name:
            stat = Path(name).stat()
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if self._context is None or self._context[0] != stamp:
            self._context = stamp, ssl.create_default_context(cafile=name or None)
        return self._context[1]


def _token(name: str) -> str:
    """The token of a file. It is read for each query, since the kubelet replaces it. Its text is in
    no error. Raises OSError, ValueError.
    """
    with Path(name).open("rb") as file:
        token = file.read(TOKEN_BYTES_MAX + 1).strip()
    if not token or len(token) > TOKEN_BYTES_MAX or not all(0x20 < one < 0x7F for one in token):
        raise ValueError(f"{name} has no token")
    return token.decode()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body, if it is within the limit. Raises QueryFailed."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise QueryFailed(LoadTrouble.UNREADABLE_ANSWER, "the answer is compressed")
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise _too_large(f"{ANSWER_BYTES_MAX} bytes")
    return b"".join(parts)


def _too_large(limit: str) -> QueryFailed:
    return QueryFailed(
        LoadTrouble.TOO_LARGE,
        f"the answer has more than {limit}: sum by the labels of vpod and pod, for one pool",
    )


def _refused(status: int, body: bytes) -> QueryFailed:
    if status in _REFUSED:
        return QueryFailed(
            LoadTrouble.REFUSED, f"the server refuses the query (HTTP {status})", _words(body)
        )
    return QueryFailed(LoadTrouble.FAILED, f"the server fails (HTTP {status})", _words(body))


def _words(body: bytes) -> str:
    return safe_repr(body[:DETAIL_CHARS_MAX].decode(errors="replace"), DETAIL_CHARS_MAX)


def reports_of_answer(body: bytes, labels: Labels) -> Answer:
    """Read the body of an answer with status 200. Raises QueryFailed."""
    if body.count(b"{") > 2 * SERIES_MAX + 2 or body.count(b"[") > SERIES_MAX + 10:
        raise _too_large(f"{SERIES_MAX} series")
    if body.count(b",") > COMMAS_MAX:
        raise _too_large(f"{COMMAS_MAX} labels")
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _unreadable("the answer is not JSON", str(error)) from error
    data = root.get("data") if isinstance(root, dict) else None
    if not isinstance(data, dict) or root.get("status") != "success":
        raise _unreadable("the answer is none of Prometheus", _words(body))
    if data.get("resultType") != "vector":
        raise _unreadable("the query does not bring a vector", _words(body))
    result = data.get("result")
    if not isinstance(result, list):
        raise _unreadable("the answer has no list of series", _words(body))
    return _answer(result, labels)._replace(warnings=_warnings(root.get("warnings")))


def _warnings(listed: object) -> str:
    """The first warnings of an answer, as text for logs."""
    if not isinstance(listed, list):
        return ""
    texts = (safe_repr(one, DETAIL_CHARS_MAX) for one in listed[:WARNINGS_MAX])
    return "; ".join(texts)[:DETAIL_CHARS_MAX]


def _unreadable(text: str, detail: str = "") -> QueryFailed:
    return QueryFailed(LoadTrouble.UNREADABLE_ANSWER, text, detail)


def _answer(result: list[object], labels: Labels) -> Answer:
    if len(result) > SERIES_MAX:
        raise _too_large(f"{SERIES_MAX} series")
    found: dict[tuple[str, str], Report] = {}
    unlabelled = 0
    for series in result:
        metric = series.get("metric") if isinstance(series, dict) else None
        if not isinstance(series, dict) or not isinstance(metric, dict):
            raise _unreadable("a series is no object", safe_repr(series, DETAIL_CHARS_MAX))
        subject = _subject(metric, labels)
        if subject is None:
            unlabelled += 1
            continue
        if subject in found:
            raise _unreadable(
                "two series are about the same vpod and pod: sum by these labels", str(subject)
            )
        found[subject] = Report(*subject, _value(series))
    return Answer([*found.values()], unlabelled)


def _subject(metric: Mapping[str, object], labels: Labels) -> tuple[str, str] | None:
    """The vpod's key and the pod's name; None if a label is missing."""
    vpod, pod = metric.get(labels.vpod), metric.get(labels.pod)
    if not isinstance(vpod, str) or not isinstance(pod, str) or not vpod or not pod:
        return None
    if not labels.vpod_namespace:
        return vpod, pod
    namespace = metric.get(labels.vpod_namespace)
    return (f"{namespace}/{vpod}", pod) if isinstance(namespace, str) and namespace else None


def _value(series: Mapping[str, object]) -> float:
    """The sample's value, which Prometheus writes as text, also NaN and +Inf."""
    value = series.get("value")
    try:
        if isinstance(value, list) and isinstance(value[1], str):
            return float(value[1])
    except (IndexError, ValueError):
        pass
    raise _unreadable("a series has no number", safe_repr(series, DETAIL_CHARS_MAX))
