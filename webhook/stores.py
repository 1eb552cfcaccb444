"""Where a bundle is kept: a directory for development, a Secret for replicas.

Nothing that is found is trusted. Parts that are absent or not base64 are empty, and
``webhook.rotation`` judges the rest. ``save`` succeeds only if nobody has stored anything since the
``load`` before it.
"""

import asyncio
import base64
import contextlib
import copy
import fcntl
import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from extender.kube.api import SECRETS, AlreadyExists, Api, Conflict, NotFound, Obj
from extender.kube.files import replace_file
from webhook.rotation import FILE_NAMES, Bundle
from webhook.x509 import PEM_BYTES_MAX, pem_in_base64

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds. ``save`` compares ``version``; "" means that nothing is stored."""

    bundle: Bundle | None
    version: str


class CertificateStore(Protocol):
    """Holds one bundle for all replicas. In each replica, one task calls it once a minute."""

    async def load(self) -> Stored:
        """Return what is stored; its bundle is None if there is nothing."""
        ...

    async def save(self, bundle: Bundle, version: str) -> bool:
        """Store the bundle if ``version`` is still what is stored. Else change nothing and return
        False.
        """
        ...


class DirectoryStore:
    """Files in a directory. An advisory lock makes load and save atomic for processes on this
    machine.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def load(self) -> Stored:
        """Raises OSError if the directory cannot be made or read."""
        return await asyncio.to_thread(self._load)

    async def save(self, bundle: Bundle, version: str) -> bool:
        """Raises OSError if the directory cannot be written."""
        return await asyncio.to_thread(self._save, bundle, version)

    def _load(self) -> Stored:
        with self._locked():
            return self._read()

    def _save(self, bundle: Bundle, version: str) -> bool:
        with self._locked():
            if self._read().version != version:
                return False
            for name, content in bundle.files().items():
                if content:
                    self._write(name, content)
                else:
                    (self._directory / name).unlink(missing_ok=True)
            return True

    def _read(self) -> Stored:
        files = {
            name: _read_some(path)
            for name in FILE_NAMES
            if (path := self._directory / name).exists()
        }
        if not files:
            return Stored(None, "")
        digest = hashlib.sha256(
            b"\0".join(name.encode() + files.get(name, b"") for name in FILE_NAMES)
        )
        return Stored(Bundle.from_files(files), digest.hexdigest())

    def _write(self, name: str, content: bytes) -> None:
        # A crash between two files leaves whole files that do not go together, and this is noticed.
        mode = 0o644 if name.endswith(".crt") else 0o600
        replace_file(self._directory / name, content, mode)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _read_some(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(PEM_BYTES_MAX)


class SecretStore:
    """Keys of a Secret, updated optimistically, and created if there is none. RBAC: get of that one
    Secret, update for ``save``.

    The shipped roles do not grant create. Create cannot be narrowed to a name or a type, and
    Kubernetes fills a Secret of type ``kubernetes.io/service-account-token`` with the token of any
    account of the namespace. So the manifests bring an empty Secret, whose type is immutable.
    """

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._found: Obj = {}

    async def load(self) -> Stored:
        """Raises ApiError. A missing Secret means that nothing is stored."""
        self._found = {}
        try:
            self._found = await self._api.get(SECRETS, self._namespace, self._name)
        except NotFound:
            return Stored(None, "")
        bundle = Bundle.from_files(_decoded(self._found.get("data")))
        return Stored(bundle, str(self._found["metadata"]["resourceVersion"]))

    async def save(self, bundle: Bundle, version: str) -> bool:
        """Raises ApiError. Returns False if another replica was faster."""
        secret = self._with(bundle)
        try:
            if version:
                secret["metadata"]["resourceVersion"] = version
                await self._api.update(SECRETS, self._namespace, self._name, secret)
            else:
                await self._api.create(SECRETS, self._namespace, secret)
        except (AlreadyExists, Conflict, NotFound) as error:
            _log.info(
                "Secret %s/%s was written by another replica: %s",
                self._namespace,
                self._name,
                error,
            )
            return False
        return True

    def _with(self, bundle: Bundle) -> Obj:
        """Return the Secret with its labels, annotations and (immutable) type, but other data."""
        metadata: Obj = copy.deepcopy(self._found.get("metadata") or {})
        labels = metadata.get("labels") or {}
        metadata |= {
            "namespace": self._namespace,
            "name": self._name,
            "labels": {**labels, "app.kubernetes.io/name": "vreplica-webhook"},
        }
        return {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": metadata,
            "type": str(self._found.get("type") or "Opaque"),
            "data": {
                name: base64.b64encode(content).decode()
                for name, content in bundle.files().items()
                if content
            },
        }


def _decoded(data: object) -> Mapping[str, bytes]:
    """Return our keys of a Secret's data. A person may have put anything there."""
    values = data if isinstance(data, dict) else {}
    return {name: pem_in_base64(values.get(name))[:PEM_BYTES_MAX] for name in FILE_NAMES}
