"""Where the API server is and who we are there: kubernetes-asyncio's configuration, credentials and TLS, nothing more.

Order of sources, as controller-runtime has it: the kubeconfig (or context) asked for; else ``$KUBECONFIG``; else the
pod's service account; else ``~/.kube/config``. The library parses the kubeconfig, runs credential plug-ins and builds
the TLS context. Certificates are verified unless the kubeconfig's cluster itself says ``insecure-skip-tls-verify``.
Only RFC 5280's formal extras (Python's VERIFY_X509_STRICT) are off, as in Go: many clusters' own CAs lack key identifiers.

Tokens expire (bound service account tokens within the hour), so they are looked at again every ``REFRESH_PERIOD_S``, in
the background while requests go on with the old one: a hanging plug-in must not delay a lease renewal. Only a
401, which says that nothing was done, waits for a fresh token.
"""

import asyncio
import logging
import os
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    load_incluster_config,
)
from kubernetes_asyncio.config.kube_config import load_kube_config
from yarl import URL

from extender.kube.api import ConnectError
from extender.not_yaml import NOT_YAML, why_not_yaml

REFRESH_PERIOD_S: Final = 60.0
"""client-go's period for token files."""
REFRESH_TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 100
LEASE_CONNECTIONS_MAX: Final = 2
"""Set apart: a lease that waits for one of the others, all busy with slow answers, is a lease lost."""
READ_BUFFER_BYTES: Final = 2**20
DEFAULT_NAMESPACE: Final = "default"
"""Where neither the kubeconfig's context nor the pod's service account names one, as kubectl has it."""

_BROKEN: Final = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AssertionError,
    TimeoutError,
    yaml.YAMLError,
)
"""What the library raises for a kubeconfig or credential that is wrong."""

_log = logging.getLogger(__name__)

# The library's functions carry no annotations; these names give them one.
_new_configuration: Final[Callable[[], Any]] = Configuration
_in_cluster: Final[Callable[..., None]] = load_incluster_config
_from_kubeconfig: Final[Callable[..., Awaitable[Any]]] = load_kube_config
_new_rest: Final[Callable[..., Any]] = RESTClientObject


class Credentials:
    """The Authorization header, kept fresh. ``load`` makes the library look again; it is not run twice at once."""

    def __init__(self, configuration: Any, load: Callable[[], Awaitable[None]]) -> None:
        self._configuration = configuration
        self._load = load
        self._loaded_at = asyncio.get_running_loop().time()
        self._refreshing: asyncio.Task[bool] | None = None

    def authorization(self) -> str:
        """Header value, "" for none; starts a refresh in the background when the last one is old."""
        if asyncio.get_running_loop().time() - self._loaded_at >= REFRESH_PERIOD_S:
            self._refreshing = self._refresh_task()
        return str(self._configuration.api_key.get("BearerToken") or "").strip()

    async def renew(self) -> bool:
        """Look again now, after a 401; False where that failed or nothing changed."""
        before = self.authorization()
        fresh = await asyncio.shield(self._refresh_task())
        return fresh and self.authorization() != before

    async def close(self) -> None:
        """Stop a refresh that is under way."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})

    def _refresh_task(self) -> "asyncio.Task[bool]":
        """The refresh under way, else a new one."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="credentials")
        return self._refreshing

    async def _refresh(self) -> bool:
        self._loaded_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                await self._load()
        except _BROKEN as error:
            _log.warning("credentials not refreshed, going on with the old ones: %s", error)
            return False
        return True


class Connection:
    """A server's address, two HTTP sessions to it (one for leases), and our credentials there."""

    def __init__(
        self, configuration: Any, load: Callable[[], Awaitable[None]], *, namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        self.namespace = namespace
        """Of the kubeconfig's context or the pod's service account: what kubectl takes without ``--namespace``."""
        self.base_url = str(configuration.host).rstrip("/")
        self.credentials = Credentials(configuration, load)
        self.server_hostname: str | None = configuration.tls_server_name or None
        self.proxy: str | None = configuration.proxy or _proxy_from_environment(self.base_url)
        self.session = _session(configuration, CONNECTIONS_MAX)
        self.lease_session = _session(configuration, LEASE_CONNECTIONS_MAX)

    async def close(self) -> None:
        """Close the sessions and their connections."""
        await self.credentials.close()
        await self.session.close()
        await self.lease_session.close()


async def open_connection(*, kubeconfig: str = "", context: str = "") -> Connection:
    """Connect by a kubeconfig file, a context of it, or what is found. Nothing is sent yet. Raises ConnectError."""
    configuration = _new_configuration()
    configuration.disable_strict_ssl_verification = True
    # The library would fall back to http://localhost for a kubeconfig without a server.
    configuration.host = ""
    path = _kubeconfig_path(kubeconfig, context)
    namespace = ""
    try:
        if path:
            _look_at(path)
            loader = await _from_kubeconfig(
                config_file=path,
                context=context or _first_current_context(path),
                client_configuration=configuration,
                persist_config=False,
            )
            namespace = _context_namespace(loader.current_context)

            async def load() -> None:
                await loader.load_and_set(configuration)
        else:
            _in_cluster(client_configuration=configuration, try_refresh_token=False)
            namespace = _pod_namespace()

            async def load() -> None:
                # One small file on the pod's memory file system.
                _in_cluster(client_configuration=configuration, try_refresh_token=False)

        if not configuration.host:
            raise ConnectError(f"kubeconfig {path}: the cluster has no server")
        return Connection(configuration, load, namespace=namespace or DEFAULT_NAMESPACE)
    except _BROKEN as error:
        source = f"kubeconfig {path}" if path else "service account of the pod"
        raise ConnectError(f"{source}: {type(error).__name__}: {error}") from error


def _kubeconfig_path(kubeconfig: str, context: str) -> str:
    """The kubeconfig to read, "" for the pod's service account."""
    chosen = kubeconfig or os.environ.get("KUBECONFIG", "")
    if chosen:
        if kubeconfig and not Path(kubeconfig).expanduser().is_file():
            raise ConnectError(f"kubeconfig {kubeconfig}: no such file")
        return chosen
    if os.environ.get(SERVICE_HOST_ENV_NAME) and not context:
        return ""
    home = Path.home() / ".kube" / "config"
    if not home.is_file():
        raise ConnectError(f"no kubeconfig given, {home} does not exist, and this is not a pod of a cluster")
    return str(home)


def _look_at(path: str) -> None:
    """Files that hold nothing are told as that: the library stumbles over them somewhere. Raises ConnectError."""
    names = [name for name in path.split(os.pathsep) if name]
    there = [file for name in names if (file := Path(name).expanduser()).exists()]
    if not there:
        raise ConnectError(f"kubeconfig {path}: no such file")
    for file in there:
        if file.is_dir():
            raise ConnectError(f"kubeconfig {file}: is a directory")
    try:
        documents = [yaml.safe_load(file.read_text()) for file in there]
    except NOT_YAML as error:
        raise ConnectError(f"kubeconfig {path}: is not YAML: {why_not_yaml(error)}") from error
    if not any(isinstance(one, dict) and one.get("clusters") for one in documents):
        raise ConnectError(f"kubeconfig {path}: names no cluster")


def _first_current_context(path: str) -> str | None:
    """Of several kubeconfigs the first that names one decides, in kubectl; in the library it is the last."""
    names = [name for name in path.split(os.pathsep) if name]
    if len(names) < 2:
        return None
    for name in names:
        file = Path(name).expanduser()
        document = yaml.safe_load(file.read_text()) if file.is_file() else None
        if isinstance(document, dict) and (current := document.get("current-context")):
            return str(current)
    return None


def _context_namespace(context: Any) -> str:
    inner = context.get("context") if isinstance(context, dict) else None
    return str(inner.get("namespace") or "") if isinstance(inner, dict) else ""


def _pod_namespace() -> str:
    """The namespace of the pod's service account, beside its token; "" where nobody has put it there."""
    try:
        return Path(SERVICE_TOKEN_FILENAME).with_name("namespace").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _session(configuration: Any, connections_max: int) -> aiohttp.ClientSession:
    """The library's connector with its TLS context, in a session of our own.

    The library's session trusts the environment, which in aiohttp means a thread that reads ~/.netrc for every single
    request; ours does not. Cookies are not kept either: no API server needs them.
    """
    library = _new_rest(configuration, maxsize=connections_max)
    connector = library.pool_manager.connector
    library.pool_manager.detach()
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
    )


def _proxy_from_environment(base_url: str) -> str | None:
    """HTTPS_PROXY and its kind, with NO_PROXY, as Go's transport takes them."""
    url = URL(base_url)
    if not url.host or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)
