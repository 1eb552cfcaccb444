"""The connection to the API server: two HTTP sessions, and ``Credentials``, which follow the files.

Tokens expire (bound service account tokens within the hour), certificates are renewed, and
authorities change. So the whole kubeconfig or service account (``access``) is read again every
``REFRESH_PERIOD_S``. That happens in the background while requests use the credentials at hand,
because a hanging plug-in must not delay a lease renewal. Only after a 401 or a failed TLS
handshake, which both mean that the server did nothing, does a request wait for a fresh reading. The
refused credential counts as expired then: exec plug-ins run again. A reading that brought nothing
new is not repeated for ``RENEW_PAUSE_S``.

A reading is used whole or not at all. Connections belong to their TLS context. With a new context
come new connections, and the old ones end with their requests. A reading with another server
address is not used: it may be another cluster, and all that we know is of this one.
"""

import asyncio
import logging
from typing import Final

import aiohttp

from extender.kube.access import Access, Source, find_source
from extender.kube.api import ConnectError
from extender.kube.fence import check_fence
from extender.model.errors import VReplicaError
from extender.model.names import DEFAULT_NAMESPACE

REFRESH_PERIOD_S: Final = 60.0
"""client-go's period for token files."""
REFRESH_TIMEOUT_S: Final = 30.0
RENEW_PAUSE_S: Final = 5.0
CONNECTIONS_MAX: Final = 100
LEASE_CONNECTIONS_MAX: Final = 2
"""Reserved for leases: one that waited behind a hundred slow answers would be lost."""
READ_BUFFER_BYTES: Final = 2**20

_log = logging.getLogger(__name__)


class Credentials:
    """Our current access to the API server. A source is not read twice at once."""

    def __init__(self, source: Source, access: Access) -> None:
        """``access``: the first reading of ``source``."""
        self._source = source
        self._read = source.read
        self._access = access
        self._now = asyncio.get_running_loop().time
        self._loaded_at = self._now()
        self._in_vain_at = float("-inf")
        """When a reading that a request waited for brought nothing new."""
        self._refreshing: asyncio.Task[None] | None = None
        self._is_forced = False
        """Whether the refresh under way began after a refusal."""

    def access(self) -> Access:
        """What to send the next request with. Starts a refresh in the background if the last one is
        old.
        """
        if not self._under_way() and self._now() - self._loaded_at >= REFRESH_PERIOD_S:
            self._start(force_refresh=False)
        return self._access

    async def renew(self, refused: Access) -> bool:
        """Read again now, because ``refused`` was refused. False if that failed or changed
        nothing.
        """
        if self._under_way() and not self._is_forced:
            # A background refresh may keep what was refused.
            await self._finished()
        if self._access is refused and self._now() - self._in_vain_at >= RENEW_PAUSE_S:
            if not self._under_way():
                self._start(force_refresh=True)
            await self._finished()
            if self._access is refused:
                self._in_vain_at = self._now()
        return self._access is not refused

    async def close(self) -> None:
        """Stop a refresh that is under way."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})

    def _under_way(self) -> bool:
        return self._refreshing is not None and not self._refreshing.done()

    def _start(self, *, force_refresh: bool) -> None:
        self._is_forced = force_refresh
        self._refreshing = asyncio.create_task(
            self._refresh(force_refresh=force_refresh), name="credentials"
        )

    async def _finished(self) -> None:
        """Wait for the refresh under way. A cancelled waiter does not cancel it for the others."""
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing})

    async def _refresh(self, *, force_refresh: bool) -> None:
        self._loaded_at = self._now()
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                access = await self._read(force_refresh=force_refresh)
        except Exception as error:  # noqa: BLE001 - plug-ins and identity providers, behind a library that lets all through
            _log.warning(
                "credentials not refreshed, going on with the old ones: %s: %s",
                type(error).__name__,
                error,
            )
            return
        if access.base_url != self._access.base_url:
            _log.warning(
                "%s now names the API server %s: that needs a restart, going on with %s as before",
                self._source.name,
                access.base_url,
                self._access.base_url,
            )
        elif access != self._access:
            if access.trust != self._access.trust:
                _log.info(
                    "%s: certificates have changed, new connections use them", self._source.name
                )
            self._access = access


class Connection:
    """A server's address, two HTTP sessions to it (one for leases), and our credentials there."""

    def __init__(self, source: Source, access: Access) -> None:
        self.namespace = source.namespace or DEFAULT_NAMESPACE
        """See ``KubeApi.namespace``."""
        self.base_url = access.base_url
        self.credentials = Credentials(source, access)
        self.session = _session(CONNECTIONS_MAX)
        self.lease_session = _session(LEASE_CONNECTIONS_MAX)

    async def close(self) -> None:
        """Close the sessions and their connections."""
        await self.credentials.close()
        await self.session.close()
        await self.lease_session.close()


async def open_connection(*, kubeconfig: str = "", context: str = "") -> Connection:
    """Connect by a kubeconfig file, a context of it, or the source that is found. Nothing is sent
    yet. Raises ConnectError.
    """
    source = find_source(kubeconfig, context)
    try:
        return Connection(source, await source.read(force_refresh=False))
    except VReplicaError:
        raise
    except Exception as error:  # see Credentials._refresh
        raise ConnectError(f"{source.name}: {type(error).__name__}: {error}") from error


class _FencedRequest(aiohttp.ClientRequest):
    """Checks the fence right before the request is written: it may have waited for seconds for one
    of the connections.
    """

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        check_fence()
        return await super().send(conn)


def _session(connections_max: int) -> aiohttp.ClientSession:
    """A session whose requests name their TLS context themselves.

    With ``trust_env`` aiohttp would read ~/.netrc in a thread for every request. Cookies are not
    kept: no API server needs them.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections_max),
        request_class=_FencedRequest,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
    )
