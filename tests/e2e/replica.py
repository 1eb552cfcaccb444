"""``Replica``: one process of the service, and what its pages say."""

import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.processes import Process
from tests.e2e.waiting import NotYet, eventually


class Replica:
    """One ``vreplica serve`` process, on a port that it keeps when it is started again; ``tls``:
    how its pages are asked for by https.
    """

    def __init__(self, config: Path, url: str, tls: ssl.SSLContext | None = None) -> None:
        self.config = config
        self.url = url
        self.tls = tls
        self.process: Process | None = None

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages."""
        async with aiohttp.ClientSession() as session, self._asked(session, path) as reply:
            return reply.status, await reply.text()

    async def state(self) -> dict[str, Any]:
        """/state.json. Raises NotYet where it does not answer."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                self._asked(session, "/state.json") as reply,
            ):
                state: dict[str, Any] = await reply.json()
                return state
        except (aiohttp.ClientError, OSError) as error:
            raise NotYet(f"{self.url}: {error!r}") from error

    async def leads(self, timeout_s: float = 30.0) -> None:
        """Returns when this replica leads."""

        async def leading() -> bool:
            state = await self.state()
            if not state["leading"]:
                raise NotYet(f"{state['leader'] or 'nobody'} leads")
            return True

        await eventually(leading, timeout_s, f"{self.url} leads")

    def _asked(
        self, session: aiohttp.ClientSession, path: str
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return session.get(self.url + path, ssl=self.tls if self.tls is not None else True)
