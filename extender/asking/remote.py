"""A running replica of the service, asked over HTTP: it knows what is reserved, and remembers who decided when and why."""

import json
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from extender.core.errors import VReplicaError
from extender.core.questions.explanation import UnknownObject

TIMEOUT_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
TRIES: Final = 3
RETRY_S: Final = 1.0


class ServerRefused(VReplicaError):
    """The service does not answer, or says no; the text says why and what to do."""


async def ask_explain(
    server: str, parameters: Mapping[str, str], *, tls: ssl.SSLContext | None = None
) -> Any:
    """``GET /v1/explain``. Raises ServerRefused, UnknownObject."""
    return await _ask(server, "GET", "/v1/explain", tls, params=dict(parameters))


async def ask_plan(server: str, request: Mapping[str, Any], *, tls: ssl.SSLContext | None = None) -> Any:
    """``POST /v1/plan``. Raises ServerRefused, UnknownObject."""
    return await _ask(server, "POST", "/v1/plan", tls, json=dict(request))


async def _ask(server: str, method: str, path: str, tls: ssl.SSLContext | None, **more: Any) -> Any:
    base = _base(server)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.request(method, base + path, ssl=tls if tls is not None else True, **more) as reply,
        ):
            body = await reply.content.read(ANSWER_BYTES_MAX)
            while not reply.content.at_eof() and len(body) < ANSWER_BYTES_MAX:
                body += await reply.content.read(ANSWER_BYTES_MAX)
            return _read(base, reply.status, body)
    except TimeoutError as error:
        raise ServerRefused(f"{base} did not answer within {TIMEOUT_S:g} s") from error
    except aiohttp.ClientError as error:
        raise ServerRefused(
            f"{base} cannot be reached: {error}; a service in a cluster is reached by "
            "kubectl port-forward, without --server the cluster itself is read"
        ) from error


def _base(server: str) -> str:
    parts = urlsplit(server if "//" in server else f"http://{server}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.path.strip("/"):
        raise ServerRefused(f"--server {server!r} is not a URL such as http://127.0.0.1:10261")
    return f"{parts.scheme}://{parts.netloc}"


def _read(base: str, status: int, body: bytes) -> Any:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    said = answer.get("error") if isinstance(answer, dict) else None
    text = str(said or body[:300].decode("utf-8", "replace")).strip()
    if status == 404 and said:
        raise UnknownObject(text)
    if status == 404:
        raise ServerRefused(f"{base} does not know the question: is it a vreplica-scheduler of this version?")
    raise ServerRefused(f"{base} answered {status}: {text}")
