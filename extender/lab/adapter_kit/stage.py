"""One adapter pod for one rule: its files, its process, and the two replicas that it can ask."""

import asyncio
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import orjson

from extender.kube.ratelimit import TokenBucket
from extender.lab.adapter_kit.address import Address
from extender.lab.adapter_kit.authority import Authority
from extender.lab.adapter_kit.contract import Answer, Contract
from extender.lab.adapter_kit.judging import Patience, RuleBroken
from extender.lab.adapter_kit.listener import Desk, Replica
from extender.lab.adapter_kit.process import AdapterProcess, Process, RunningAdapter
from extender.lab.adapter_kit.worklog import WorkLog
from extender.model.assignment import AssignedShare, Assignment, ShareState
from extender.model.indexes import indexes_from

POD: Final = "adapters/kit-0"
FIRST_GENERATION: Final = 40
GENERATIONS_A_ROUND: Final = 10_000
EPOCHS_A_ROUND: Final = 100
"""More than any rule uses, in both."""
QPS, BURST = 10.0, 20
"""Acknowledgements of one pod that the service takes."""
LOOK_EVERY_S: Final = 0.02
"""Between two looks at the work log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The adapter's pod. ``folder``: its files. ``addresses``: of the replicas that it can ask.
    ``first_round``: see ``Stage.begin_round``.
    """

    folder: Path
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    addresses: Sequence[Address] = (Address("127.0.0.1", 0), Address("127.0.0.1", 0))
    first_round: int = 0


class Stage:
    """What a rule plays on. ``stage`` opens one.

    Each change makes a new generation, and sends it. An adapter that runs already plays one rule
    after the other on the same stage, each in a round of its own.
    """

    def __init__(
        self, process: Process, pod: Pod, authority: Authority, patience: Patience
    ) -> None:
        self._pod, self.patience, self.process = pod, patience, process
        self.authority = authority
        self.desk = Desk(pod.token, self.document, self._hear)
        self.replicas = [
            Replica(self.desk, authority.context, address) for address in pod.addresses
        ]
        self.log = WorkLog(pod.folder / "work.jsonl")
        self._bucket = TokenBucket(QPS, BURST)
        self._changed = asyncio.Event()
        self._has_waited_for_the_log = False
        pod.folder.mkdir(exist_ok=True)
        self._write("ca.crt", authority.ca_pem)
        self.replace_token(pod.token)
        self._begin(pod.first_round)

    def _begin(self, number: int) -> None:
        self.lease_s: float | None = None
        self.more: Mapping[str, object] = {}
        """Fields that the assignment and each share have besides."""
        self._epochs_before = number * EPOCHS_A_ROUND
        generation = FIRST_GENERATION + number * GENERATIONS_A_ROUND
        self.assignment = Assignment(generation, POD, self._pod.uid, {})
        self.contract = Contract(self._pod.uid)
        self.contract.tell(self.assignment)

    async def begin_round(self, number: int) -> None:
        """Take back what the rule before has done, forget what it has seen, and assign nothing.

        Generations and epochs are greater than those of all rounds with lower numbers: an adapter
        is right to ignore what is not. Raises OSError if a replica cannot listen again.
        """
        self.desk.heal()
        self.replace_token(self._pod.token)
        for replica in self.replicas:
            await replica.open()
        self.look()
        self._begin(number)
        self.desk.send(self.document())

    def document(self) -> bytes:
        """Return the newest assignment as the service writes it."""
        return self.written(self.assignment)

    def written(self, assignment: Assignment) -> bytes:
        """Return an assignment as the service writes it."""
        shares = {
            key: {name: value for name, value in share._asdict().items() if value != ""}
            | dict(self.more)
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
                **self.more,
            }
        )

    # -- the scheduler's side ----------------------------------------------------------------------

    def tell(self, key: str, share: AssignedShare | None, *, send: bool = True) -> None:
        """Change one share, None takes it away. Without ``send`` the streams do not bring it."""
        shares = {one: each for one, each in self.assignment.shares.items() if one != key}
        if share is not None:
            shares[key] = share
        self.assignment = Assignment(self.generation + 1, POD, self._pod.uid, shares)
        self.contract.tell(self.assignment)
        if send:
            self.desk.send(self.document())

    def serve(self, key: str, vreplicas: int = 2, epoch: int = 7, *, send: bool = True) -> None:
        """Tell the adapter to serve."""
        self.tell(key, AssignedShare(vreplicas, 1, 8, self.epoch(epoch)), send=send)

    def serve_indexes(self, key: str, indexes: str, epoch: int) -> None:
        """Tell the adapter to serve these, in a pool with ``identity: Indexed``."""
        count = indexes_from(indexes).bit_count()
        self.tell(key, AssignedShare(count, 1, 8, self.epoch(epoch), indexes=indexes))

    def prepare(self, key: str, vreplicas: int = 2, epoch: int = 7) -> None:
        """Tell the adapter to get ready."""
        here = self.epoch(epoch)
        self.tell(key, AssignedShare(vreplicas, 1, 8, here, ShareState.PREPARE, peer="kit-1"))

    def epoch(self, number: int) -> int:
        """The epoch that has this number in this round."""
        return self._epochs_before + number

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

    def replace_token(self, token: str) -> None:
        """Expect this token from now on, and write it to its file."""
        self.desk.token = token
        self._write("token", token.encode())

    def _write(self, name: str, content: bytes) -> None:
        new = self._pod.folder / f"{name}.new"
        new.write_bytes(content)
        new.replace(self._pod.folder / name)

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
        for piece in self.log.read(now, self.contract.violate):
            # Work of a round before was judged there.
            if not 0 <= piece.epoch < self._epochs_before:
                self.contract.work(piece, now)

    async def start(self) -> None:
        """Start the command. Raises OSError."""
        await self.process.start(self.variables())

    def variables(self) -> dict[str, str]:
        """The environment that tells the adapter where the kit is."""
        return {
            "VREPLICA_URLS": ",".join(replica.address.url for replica in self.replicas),
            "VREPLICA_DIR": str(self._pod.folder),
            "VREPLICA_WORK_LOG": str(self.log.path),
        }

    def shares_folder(self) -> bool:
        """Whether the adapter uses the folder for certain, and not copies of its files."""
        return self.log.is_used or not isinstance(self.process, RunningAdapter)

    # -- what is expected of the adapter -----------------------------------------------------------

    async def until(
        self, happens: Callable[[], bool], expected: str, within_s: float | None = None
    ) -> None:
        """Wait until it happens. Raises RuleBroken."""
        limit_s = self.patience.step_s if within_s is None else within_s
        if not await self.comes(happens, limit_s, expected):
            raise RuleBroken(f"{expected} within {limit_s:g} s", self.seen())
        self.must_be_right(expected)

    async def comes(self, happens: Callable[[], bool], within_s: float, expected: str) -> bool:
        """Wait until it happens, and say whether it did. Raises RuleBroken if the process ends."""
        try:
            async with asyncio.timeout(within_s):
                while not happens():
                    self._must_run(expected)
                    await self._a_moment()
        except TimeoutError:
            return False
        return True

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
        """Wait for a piece of work from now on, as long as an adapter that serves may take for one;
        for nothing if the adapter writes no work log. Raises RuleBroken.
        """
        epoch = None if epoch is None else self.epoch(epoch)
        of_index = "" if index is None else f"index {index} of "
        of_epoch = "" if epoch is None else f" with epoch {epoch}"
        what = f"work on {of_index}{key}{of_epoch}"
        if not self.log.is_used:
            await self._wait_for_the_log(what)
        if self.log.is_used:
            count = self.log.count(key, epoch, index)
            await self.until(
                lambda: self.log.count(key, epoch, index) > count, what, self.patience.work_s
            )

    async def _wait_for_the_log(self, what: str) -> None:
        """Find out whether the adapter writes one. Raises RuleBroken if its first line is late."""
        if self._has_waited_for_the_log:
            return
        self._has_waited_for_the_log = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self.log.is_used and loop.time() < began + self.patience.log_s:
            await self._a_moment()
        if self.log.is_used and (late_s := loop.time() - began) > self.patience.work_s:
            raise RuleBroken(
                f"{what} within {self.patience.work_s:g} s", f"the first one after {late_s:.1f} s"
            )

    @property
    def generation(self) -> int:
        """Of the newest assignment."""
        return self.assignment.generation

    def seen(self) -> str:
        """What the adapter has said last, for a report."""
        if self.contract.violations:
            return self.contract.violations[0]
        said = self.contract.said
        if (outdated := self.contract.outdated) is not None:
            return f"told generation {self.generation}, it acknowledges {outdated}: answered 409"
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
    """Open a stage for a command, in a new folder. Its process ends with it."""
    process = AdapterProcess(command, folder / "output")
    async with opened(Stage(process, Pod(folder=folder), authority, patience)) as made:
        yield made


@asynccontextmanager
async def opened(made: Stage) -> AsyncIterator[Stage]:
    """Open the replicas of a stage; end its process and them at the end. Raises OSError."""
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
