"""Where the certificates are kept, how several replicas agree on them, and how they get into the TLS server.

Every replica runs the same loop and none is special: load the stored bundle, ask ``x509.renewal_of`` whether it will
do, and if not store a better one under the condition that nobody else has stored one meanwhile. Who loses that race
loads the winner's. So all replicas serve certificates of the same authority, whoever made it, and the caBundle in the
webhook configurations is right for all of them.

A TLS context is loaded again in place: connections that exist go on, new ones get the new certificate.
"""

import asyncio
import base64
import contextlib
import fcntl
import hashlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from extender.core.errors import VReplicaError
from extender.kube.api import SECRETS, AlreadyExists, Api, Conflict, NotFound, Obj
from webhook.x509 import FILE_NAMES, Bundle, renewal_of

_log: Final = logging.getLogger(__name__)
RACES_MAX: Final = 8
"""Times that another replica may be faster before we give up; one is usual, at the first start."""


class CertificateError(VReplicaError):
    """There is no usable certificate, and why."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds. ``version`` is what a save is compared with; "" means nothing is stored at all."""

    bundle: Bundle | None
    version: str


class CertificateStore(Protocol):
    """Holds one bundle, shared by all replicas. Called by one task of each replica, once a minute."""

    async def load(self) -> Stored:
        """What is stored; bundle None where there is nothing or not all of it."""
        ...

    async def save(self, bundle: Bundle, version: str) -> bool:
        """Store, if ``version`` is still what is stored; False, and nothing changed, if it is not."""
        ...


class DirectoryStore:
    """Four files in a directory. An advisory lock makes load and save whole for processes on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def load(self) -> Stored:
        """Raises OSError where the directory cannot be made or read."""
        return await asyncio.to_thread(self._load)

    async def save(self, bundle: Bundle, version: str) -> bool:
        """Raises OSError where the directory cannot be written."""
        return await asyncio.to_thread(self._save, bundle, version)

    def _load(self) -> Stored:
        with self._locked():
            return self._read()

    def _save(self, bundle: Bundle, version: str) -> bool:
        with self._locked():
            if self._read().version != version:
                return False
            for name, content in bundle.files().items():
                self._write(name, content)
            return True

    def _read(self) -> Stored:
        files = {name: path.read_bytes() for name in FILE_NAMES if (path := self._directory / name).exists()}
        if not files:
            return Stored(None, "")
        digest = hashlib.sha256(b"\0".join(name.encode() + files.get(name, b"") for name in FILE_NAMES))
        return Stored(Bundle.from_files(files), digest.hexdigest())

    def _write(self, name: str, content: bytes) -> None:
        # Replaced in one step: a crash in between leaves whole files that do not go together, which is noticed.
        handle, temporary = tempfile.mkstemp(dir=self._directory, prefix=f".{name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o644 if name.endswith(".crt") else 0o600)
            Path(temporary).replace(self._directory / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class SecretStore:
    """Four keys of a Secret; created and updated optimistically. RBAC: get, create, update of that one Secret."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._type = "kubernetes.io/tls"

    async def load(self) -> Stored:
        """Raises ApiError, except where there is no Secret: that is nothing stored."""
        try:
            secret = await self._api.get(SECRETS, self._namespace, self._name)
        except NotFound:
            return Stored(None, "")
        self._type = str(secret.get("type") or "Opaque")  # immutable: what a person chose has to stay
        return Stored(
            Bundle.from_files(_decoded(secret.get("data"))), str(secret["metadata"]["resourceVersion"])
        )

    async def save(self, bundle: Bundle, version: str) -> bool:
        """Raises ApiError, except where another replica was faster: that is False."""
        secret: Obj = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {
                "namespace": self._namespace,
                "name": self._name,
                "labels": {"app.kubernetes.io/name": "vreplica-webhook"},
            },
            "type": self._type,
            "data": {name: base64.b64encode(content).decode() for name, content in bundle.files().items()},
        }
        try:
            if version:
                secret["metadata"]["resourceVersion"] = version
                await self._api.update(SECRETS, self._namespace, self._name, secret)
            else:
                await self._api.create(SECRETS, self._namespace, secret)
        except (AlreadyExists, Conflict, NotFound) as error:
            _log.info("Secret %s/%s was written by another replica: %s", self._namespace, self._name, error)
            return False
        return True


def _decoded(data: object) -> Mapping[str, bytes]:
    """The keys of a Secret that are base64; a person may have put anything there."""
    decoded: dict[str, bytes] = {}
    for name, value in data.items() if isinstance(data, dict) else ():
        with contextlib.suppress(ValueError, TypeError):
            decoded[str(name)] = base64.b64decode(value, validate=True)
    return decoded


class CertificateManager:
    """Keeps a bundle good and a server's TLS context loaded with it. ``now`` is wall-clock time, epoch seconds."""

    def __init__(self, store: CertificateStore, hosts: Sequence[str], *, now: Callable[[], float]) -> None:
        self._store = store
        self._hosts = tuple(hosts)
        self._now = now
        self._current: Bundle | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For the server; usable once ``ensure`` has returned."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def not_after(self) -> float:
        """When the certificate in use ends, epoch seconds; 0 before there is one."""
        return 0.0 if self._current is None else self._current.not_after()

    async def ensure(self) -> Bundle:
        """Load or make the bundle, and use it. Call it again from time to time: that is the rotation.

        Raises CertificateError, or what the store raises; the certificate in use stays in use then.
        """
        for _ in range(RACES_MAX):
            stored = await self._store.load()
            # Key generation and signature checks take milliseconds: not on the event loop.
            renewal = await asyncio.to_thread(renewal_of, stored.bundle, self._hosts, now_s=self._now())
            bundle = stored.bundle
            if renewal is not None:
                _log.info("new certificate: %s", renewal.reason)
                bundle = renewal.bundle if await self._store.save(renewal.bundle, stored.version) else None
            if bundle is not None:
                await self._use(bundle)
                return bundle
        raise CertificateError(f"lost {RACES_MAX} races for the certificate against other replicas")

    async def _use(self, bundle: Bundle) -> None:
        if bundle != self._current:
            await asyncio.to_thread(_load_into, self.context, bundle)
            self._current = bundle


def _load_into(context: ssl.SSLContext, bundle: Bundle) -> None:
    """Load the serving certificate; ``ssl`` reads files only, so they exist for a moment, for this user alone."""
    with tempfile.TemporaryDirectory(prefix="vreplica-webhook-") as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(bundle.cert_pem)
        key.touch(mode=0o600)
        key.write_bytes(bundle.key_pem)
        context.load_cert_chain(certificate, key)
