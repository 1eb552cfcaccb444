"""One adapter pod for one rule: its files, its process, and the two replicas that it can ask."""

import asyncio
import json
import secrets
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import orjson

from extender.kube.ratelimit import TokenBucket
from extender.lab.adapter_kit.contract import Answer, Contract
from extender.lab.adapter_kit.listener import Desk, Replica
from extender.lab.adapter_kit.process import AdapterProcess
from extender.lab.adapter_kit.worklog import WorkLog
from extender.model.assignment import AssignedShare, Assignment, ShareState
from extender.model.indexes import indexes_from
from webhook.x509 import Pair, certificates_in, new_authority, new_serving

POD: Final = "adapters/kit-0"
FIRST_GENERATION: Final = 40
QPS, BURST = 10.0, 20
"""Acknowledgements of one pod that the service takes."""
LOOK_EVERY_S: Final = 0.02
"""Between two looks at the work log."""


class RuleBroken(Exception):
    """The adapter has not done what was ``expected``; ``seen`` is what it did."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.expected, self.seen = expected, seen


class CannotTell(Exception):
    """The rule cannot be judged: the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an adapter may take, in seconds."""

    step_s: float = 10.0
    """From what it is told to its acknowledgement."""
    start_s: float = 20.0
    """From its start to the first acknowledgement."""
    silence_s: float = 50.0
    """From the last sign of life on a stream to the next acknowledgement. The library gives a
    stream up after 30 s.
    """
    grace_s: float = 28.0
    """From SIGTERM to its end. The kubelet kills after 30 s unless the pod says otherwise."""


class Authority:
    """Makes one certificate for all replicas of a run. ``ca_pem``: who signed it."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        authority = new_authority(now)
        self.ca_pem = authority.cert_pem
        signer = certificates_in(authority.cert_pem)[0]
        pair: Pair = new_serving(signer, authority.key_pem, ["127.0.0.1"], now)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cert, key = folder / "serving.crt", folder / "serving.key"
        cert.write_bytes(pair.cert_pem)
        key.touch(mode=0o600)
        key.write_bytes(pair.key_pem)
        self.context.load_cert_chain(cert, key)


class Stage:
    """What a rule plays on. ``stage`` opens one.

    Each change makes a new generation, and sends it.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, authority: Authority, patience: Patience
    ) -> None:
        self._folder = folder
        folder.mkdir()
        self.patience = patience
        self.uid = str(uuid.uuid4())
        self.contract = Contract(self.uid)
        self.assignment = Assignment(FIRST_GENERATION, POD, self.uid, {})
        self.contract.tell(self.assignment)
        self.lease_s: float | None = None
        self.desk = Desk(secrets.token_urlsafe(32), self.document, self._hear)
        self.replicas = [Replica(self.desk, authority.context) for _ in range(2)]
        self.log = WorkLog(folder / "work.jsonl")
        self.process = AdapterProcess(command, folder / "output")
        self._bucket = TokenBucket(QPS, BURST)
        self._changed = asyncio.Event()
        (folder / "ca.crt").write_bytes(authority.ca_pem)
        self.write_token()

    def document(self) -> bytes:
        """Return the newest assignment as the service writes it."""
        return self.written(self.assignment)

    def written(self, assignment: Assignment) -> bytes:
        """Return an assignment as the service writes it."""
        shares = {
            key: {name: value for name, value in share._asdict().items() if value != ""}
            for key, share in assignment.shares.items()
        }
        lease = {} if self.lease_s is None else {"leaseSeconds": self.lease_s}
        return orjson.dumps(
            {
                "generation": assignment.generation,
                "pod": assignment.pod,
                "uid": assignment.uid,
                "shares": shares,
                **lease,
            }
        )

    # -- the scheduler's side ----------------------------------------------------------------------

    def tell(self, key: str, share: AssignedShare | None, *, send: bool = True) -> None:
        """Change one share, None takes it away. Without ``send`` the streams do not bring it."""
        shares = {one: each for one, each in self.assignment.shares.items() if one != key}
        if share is not None:
            shares[key] = share
        self.assignment = Assignment(self.assignment.generation + 1, POD, self.uid, shares)
        self.contract.tell(self.assignment)
        if send:
            self.desk.send(self.document())

    def serve(self, key: str, vreplicas: int = 2, epoch: int = 7, *, send: bool = True) -> None:
        """Tell the adapter to serve."""
        self.tell(key, AssignedShare(vreplicas, 1, 8, epoch), send=send)

    def serve_indexes(self, key: str, indexes: str, epoch: int) -> None:
        """Tell the adapter to serve these, in a pool with ``identity: Indexed``."""
        count = indexes_from(indexes).bit_count()
        self.tell(key, AssignedShare(count, 1, 8, epoch, indexes=indexes))

    def prepare(self, key: str, vreplicas: int = 2, epoch: int = 7) -> None:
        """Tell the adapter to get ready."""
        share = AssignedShare(vreplicas, 1, 8, epoch, ShareState.PREPARE, peer="kit-1")
        self.tell(key, share)

    def drain(self, key: str, within_s: float) -> None:
        """Tell the adapter to let go."""
        deadline = datetime.now(UTC) + timedelta(seconds=within_s)
        share = self.assignment.shares[key]._replace(
            state=ShareState.DRAIN,
            peer="kit-1",
            deadline=deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
            intent="Rebalance",
        )
        self.tell(key, share)

    def write_file(self) -> None:
        """Write the newest assignment to its file, as the kubelet does."""
        self._write("assignment", self.document())

    def write_token(self) -> None:
        """Write the token that the replicas expect to its file."""
        self._write("token", self.desk.token.encode())

    def _write(self, name: str, content: bytes) -> None:
        new = self._folder / f"{name}.new"
        new.write_bytes(content)
        new.replace(self._folder / name)

    def _hear(self, body: bytes) -> Answer:
        self.look()
        if self._bucket.try_acquire():
            self.contract.violate(f"it acknowledges more than {QPS:g} times a second")
            return Answer(429, {"error": "too often: wait 1 s"}, 1)
        answer = self.contract.hear(body, asyncio.get_running_loop().time())
        self._changed.set()
        return answer

    def look(self) -> None:
        """Take what is new in the work log."""
        now = asyncio.get_running_loop().time()
        for piece in self.log.read(self.contract.violate):
            self.contract.work(piece, now)

    async def start(self) -> None:
        """Start the command. Raises OSError."""
        variables = {
            "VREPLICA_URLS": ",".join(replica.url for replica in self.replicas),
            "VREPLICA_DIR": str(self._folder),
            "VREPLICA_WORK_LOG": str(self.log.path),
        }
        await self.process.start(variables)

    # -- what is expected of the adapter -----------------------------------------------------------

    async def until(
        self, happens: Callable[[], bool], expected: str, within_s: float | None = None
    ) -> None:
        """Wait until it happens. Raises RuleBroken."""
        limit_s = self.patience.step_s if within_s is None else within_s
        try:
            async with asyncio.timeout(limit_s):
                while not happens():
                    self._must_run(expected)
                    await self._a_moment()
        except TimeoutError:
            raise RuleBroken(f"{expected} within {limit_s:g} s", self.seen()) from None
        self.must_be_right(expected)

    async def meanwhile(self, seconds: float, expected: str) -> None:
        """Let time pass. Raises RuleBroken if the adapter ends, or does something wrong."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            self._must_run(expected)
            self.must_be_right(expected)
            await self._a_moment()

    async def _a_moment(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._changed.wait()
        except TimeoutError:
            pass
        self.look()

    def _must_run(self, expected: str) -> None:
        if (status := self.process.exit_status) is not None:
            raise RuleBroken(
                expected, f"the process has ended with status {status}{self.process.printed()}"
            )

    def must_be_right(self, expected: str) -> None:
        """Raise RuleBroken if something wrong has been seen."""
        self.look()
        if self.contract.violations:
            raise RuleBroken(expected, self.contract.violations[0])

    def has_said(self, lists: Mapping[str, Sequence[str]] | None = None) -> bool:
        """Whether the newest generation is acknowledged, with these keys in these lists."""
        said = self.contract.said
        return (
            said is not None
            and said.generation == self.assignment.generation
            and all(set(keys) <= getattr(said, name) for name, keys in (lists or {}).items())
        )

    async def serving(self, key: str, within_s: float | None = None) -> None:
        """Wait until the adapter says that it serves a share as it is told. Raises RuleBroken."""

        def serves() -> bool:
            said = self.contract.said
            return self.has_said({"serving": [key]}) and said is not None and key not in said.busy

        await self.until(serves, f"{key} in serving of generation {self.generation}", within_s)

    async def drained(self, key: str, within_s: float | None = None) -> None:
        """Wait until the adapter says that it has let a share go. Raises RuleBroken."""
        await self.until(
            lambda: self.has_said({"drained": [key]}),
            f"{key} in drained of generation {self.generation}",
            within_s,
        )

    async def works(self, key: str, epoch: int | None = None, index: int | None = None) -> None:
        """Wait for a piece of work from now on; for nothing if the adapter writes no work log.
        Raises RuleBroken.
        """
        if not self.log.is_used:
            await self._wait_for_the_log()
        if self.log.is_used:
            count = self.log.count(key, epoch, index)
            of_index = "" if index is None else f"index {index} of "
            of_epoch = "" if epoch is None else f" with epoch {epoch}"
            await self.until(
                lambda: self.log.count(key, epoch, index) > count,
                f"work on {of_index}{key}{of_epoch}",
            )

    async def _wait_for_the_log(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.0
        while not self.log.is_used and loop.time() < until:
            await self._a_moment()

    @property
    def generation(self) -> int:
        """Of the newest assignment."""
        return self.assignment.generation

    def seen(self) -> str:
        """What the adapter has said last, for a report."""
        if self.contract.violations:
            return self.contract.violations[0]
        said = self.contract.said
        if said is None:
            why = ", its requests have no valid token" if self.desk.unauthorized else ""
            asked = sum(self.desk.asked.values())
            return f"no acknowledgement ({asked} requests{why}){self.process.printed()}"
        lists = {
            name: sorted(getattr(said, name))
            for name in ("serving", "busy", "draining", "drained")
            if getattr(said, name)
        }
        return f"acknowledged generation {said.generation}: {json.dumps(lists)}"


@asynccontextmanager
async def stage(
    command: Sequence[str], folder: Path, authority: Authority, patience: Patience
) -> AsyncIterator[Stage]:
    """Open the replicas of a stage; end its process and them at the end."""
    made = Stage(command, folder, authority, patience)
    try:
        for replica in made.replicas:
            await replica.open()
        yield made
    finally:
        await made.process.kill()
        for replica in made.replicas:
            await replica.close()
        # A connection that had not done its handshake ends by itself, as the process is gone.
        await asyncio.sleep(LOOK_EVERY_S)
