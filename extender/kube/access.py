"""The API server's address and our credentials, through kubernetes-asyncio's configuration.

Sources, in controller-runtime's order: the kubeconfig (or context) that was asked for;
``$KUBECONFIG``; the pod's service account; ``~/.kube/config``. The library parses the kubeconfig
and runs credential plug-ins. Certificates are verified unless the kubeconfig's cluster says
``insecure-skip-tls-verify``. As in Go, only RFC 5280's formal extras (Python's VERIFY_X509_STRICT)
are off: the CAs of many clusters lack key identifiers.

A source and its files are read again while the process runs (``connection``). The context is chosen
once, so that ``kubectl config use-context`` does not send a running service to another cluster.
"""

import asyncio
import contextlib
import os
import ssl
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import yaml
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    load_incluster_config,
)
from kubernetes_asyncio.config.kube_config import load_kube_config

from extender.kube.api import ConnectError
from extender.kube.proxy import proxy_for
from extender.model.yaml_errors import NOT_YAML, why_not_yaml

# The library's functions carry no annotations; these names give them one.
_new_configuration: Final[Callable[[], Any]] = Configuration
_in_cluster: Final[Callable[..., None]] = load_incluster_config
_from_kubeconfig: Final[Callable[..., Awaitable[Any]]] = load_kube_config


@dataclass(frozen=True, slots=True)
class Trust:
    """What a TLS context is made of: the authorities that we trust, and our certificate. Files by
    their content.
    """

    verified: bool
    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """One reading of a source. Two are equal if requests go to the same server with the same
    credentials.
    """

    base_url: str
    authorization: str = field(repr=False)
    """Header value, "" for none."""
    server_hostname: str | None
    """The name that the server's certificate must have; None for the URL's."""
    proxy: str | None
    trust: Trust
    tls: ssl.SSLContext = field(compare=False, repr=False)


class Source(Protocol):
    """A kubeconfig or a pod's service account. ``read`` may raise anything, because the library's
    own errors pass through.
    """

    name: str
    namespace: str
    """The namespace that kubectl uses without ``--namespace``; "" if the source names none. Known
    after the first ``read``.
    """

    async def read(self, *, force_refresh: bool) -> Access:
        """Read the source as it is now. ``force_refresh``: the last credential was refused, so it
        is not used again even if it has not expired.
        """
        ...


def find_source(kubeconfig: str, context: str) -> Source:
    """Return the source to use. Raises ConnectError if there is none."""
    path = _kubeconfig_path(kubeconfig, context)
    return _Kubeconfig(path, context) if path else _Pod()


class _Kubeconfig:
    """One context of a kubeconfig, which may be several files."""

    def __init__(self, path: str, context: str) -> None:
        self.name = f"kubeconfig {path}"
        self.namespace = ""
        self._path = path
        self._context = context
        self._texts: tuple[bytes, ...] = ()
        self._loader: Any = None
        """Made for the files in ``_texts``. It knows until when a plug-in's token is valid, and
        what an identity provider has given it.
        """
        self._last: Access | None = None

    async def read(self, *, force_refresh: bool) -> Access:
        """See Source."""
        try:
            return await self._read(force_refresh=force_refresh)
        except asyncio.CancelledError as error:
            _end_plug_in(error)
            raise

    async def _read(self, *, force_refresh: bool) -> Access:
        texts = _look_at(self._path)
        configuration = _blank()
        if texts != self._texts:
            loader = await _from_kubeconfig(
                config_file=self._path,
                context=self._context or _first_current_context(self._path),
                client_configuration=configuration,
                persist_config=False,
            )
            self._context = str(loader.current_context["name"])
            self.namespace = _namespace_of(loader.current_context)
            self._loader, self._texts = loader, texts
        else:
            if force_refresh:
                # The loader's only record of how long an exec plug-in's answer is valid.
                vars(self._loader).pop("exec_plugin_expiry", None)
            await self._loader.load_and_set(configuration)
        if not configuration.host:
            raise ConnectError(f"{self.name}: the cluster has no server")
        self._last = _access(configuration, self._last)
        return self._last


class _Pod:
    """The service account of the pod that we run in."""

    name = "service account of the pod"

    def __init__(self) -> None:
        self.namespace = ""
        self._last: Access | None = None

    async def read(self, *, force_refresh: bool) -> Access:  # noqa: ARG002 - a file is never older than itself
        """See Source. Reads small files on the pod's memory file system."""
        configuration = _blank()
        _in_cluster(client_configuration=configuration, try_refresh_token=False)
        self.namespace = _pod_namespace()
        self._last = _access(configuration, self._last)
        return self._last


def _end_plug_in(cancelled: asyncio.CancelledError) -> None:
    """Kill the credential plug-in that a cancelled reading waited for. The library leaves it
    running, and one that hangs would be one more process with each reading.
    """
    for frame, _ in traceback.walk_tb(cancelled.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, asyncio.subprocess.Process):
                with contextlib.suppress(ProcessLookupError):
                    value.kill()


def _blank() -> Any:
    configuration = _new_configuration()
    # The library would fall back to http://localhost for a kubeconfig without a server.
    configuration.host = ""
    return configuration


def _access(configuration: Any, last: Access | None) -> Access:
    base_url = str(configuration.host).rstrip("/")
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    trust = Trust(
        bool(configuration.verify_ssl),
        *(Path(file).read_bytes() if file else b"" for file in files),
    )
    return Access(
        base_url=base_url,
        authorization=str(configuration.api_key.get("BearerToken") or "").strip(),
        server_hostname=configuration.tls_server_name or None,
        proxy=proxy_for(base_url, configuration.proxy, os.environ),
        trust=trust,
        # A new context reads all authorities of the system: tens of milliseconds.
        tls=last.tls if last is not None and last.trust == trust else _tls(configuration),
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


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
        raise ConnectError(
            f"no kubeconfig given, {home} does not exist, and this is not a pod of a cluster"
        )
    return str(home)


def _look_at(path: str) -> tuple[bytes, ...]:
    """The content of the files. Raises ConnectError if they are missing, are not YAML, or name no
    cluster: the library fails on such files with less clear errors.
    """
    names = [name for name in path.split(os.pathsep) if name]
    there = [file for name in names if (file := Path(name).expanduser()).exists()]
    if not there:
        raise ConnectError(f"kubeconfig {path}: no such file")
    for file in there:
        if file.is_dir():
            raise ConnectError(f"kubeconfig {file}: is a directory")
    texts = tuple(file.read_bytes() for file in there)
    try:
        documents = [yaml.safe_load(text) for text in texts]
    except NOT_YAML as error:
        raise ConnectError(f"kubeconfig {path}: is not YAML: {why_not_yaml(error)}") from error
    if not any(isinstance(one, dict) and one.get("clusters") for one in documents):
        raise ConnectError(f"kubeconfig {path}: names no cluster")
    return texts


def _first_current_context(path: str) -> str | None:
    """The current context of the first of several kubeconfigs that names one, as in kubectl; the
    library takes the last.
    """
    names = [name for name in path.split(os.pathsep) if name]
    if len(names) < 2:
        return None
    for name in names:
        file = Path(name).expanduser()
        document = yaml.safe_load(file.read_text()) if file.is_file() else None
        if isinstance(document, dict) and (current := document.get("current-context")):
            return str(current)
    return None


def _namespace_of(context: Any) -> str:
    inner = context.get("context") if isinstance(context, dict) else None
    return str(inner.get("namespace") or "") if isinstance(inner, dict) else ""


def _pod_namespace() -> str:
    """The namespace beside the token of the pod's service account; "" if there is none."""
    try:
        return Path(SERVICE_TOKEN_FILENAME).with_name("namespace").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
