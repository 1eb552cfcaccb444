"""Plain HTTP to the API server, with nothing of ours between: the facts that our client relies on
are checked with it.

Theory of operation. ``RawHttp`` keeps one aiohttp session to one server with one identity, verifies
TLS by the authority in the kubeconfig, and hands back status and decoded body, whatever they are: a
test asserts on 409 as well as on 200.
"""

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
import yaml


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status and JSON body (None when it is not JSON)."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """``message`` of a metav1.Status, else ""."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else ""


class RawHttp:
    """One identity at one API server; an async context manager."""

    def __init__(self, kubeconfig: Path, *, timeout_s: float = 15.0) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self.url: str = cluster["server"]
        self._tls: ssl.SSLContext | bool = True
        if "certificate-authority-data" in cluster:
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            self._tls = ssl.create_default_context(cadata=authority)
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=self._timeout
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request with a JSON body, never retried. Raises what aiohttp raises when there is no
        answer.
        """
        assert self._session is not None, "enter it first"
        data = None if body is None else orjson.dumps(body)
        headers = {} if data is None else {"Content-Type": content_type}
        async with self._session.request(
            method, self.url + path, data=data, headers=headers, params=query
        ) as reply:
            content = await reply.read()
            is_json = reply.content_type.endswith("json")
            return Answer(reply.status, orjson.loads(content) if is_json and content else None)

    async def get(self, path: str, **query: str) -> Answer:
        """GET."""
        return await self.request("GET", path, query=query)

    async def watch(self, path: str, version: str, *, timeout_s: int) -> list[Any]:
        """All events of a watch from ``version`` until the server ends it after ``timeout_s``."""
        assert self._session is not None, "enter it first"
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(timeout_s)}
        async with self._session.get(self.url + path, params=query) as reply:
            return [orjson.loads(line) async for line in reply.content]

    async def post(self, path: str, body: Any) -> Answer:
        """POST."""
        return await self.request("POST", path, body)

    async def delete(self, path: str, body: Any = None) -> Answer:
        """DELETE, of an object or of a collection."""
        return await self.request("DELETE", path, body)
