"""A small adapter without the library, and others that are each wrong in one way.

``python -m tests.lab.adapter_kit.adapters NAME`` runs one, as ``vreplica adapter-kit`` starts it.
"""

import asyncio
import json
import os
import signal
import ssl
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

FOLDER = Path(os.environ.get("VREPLICA_DIR", "."))
URLS = os.environ.get("VREPLICA_URLS", "").split(",")
WORK_LOG = Path(os.environ.get("VREPLICA_WORK_LOG", os.devnull))

Document: TypeAlias = dict[str, Any]


class Adapter:
    """Keeps the contract. It does a piece of work for each share that it serves every tick."""

    silence_s = 5.0
    tick_s = 0.05

    def __init__(self) -> None:
        self.told: Document = {"generation": -1, "uid": "", "shares": {}}
        self.serving: dict[str, int] = {}
        """Epoch by share."""
        self.said: Document | None = None
        self.ending = False
        self.at = 0
        """Which of URLS is asked."""

    # -- what is told ------------------------------------------------------------------------------

    def take(self, document: bytes) -> None:
        told = json.loads(document)
        if self.is_ours(told) and self.is_newer(told):
            self.told = told

    def is_ours(self, told: Document) -> bool:
        return bool(self.told["uid"] in {"", told["uid"]})

    def is_newer(self, told: Document) -> bool:
        return bool(told["generation"] > self.told["generation"])

    # -- what is done ------------------------------------------------------------------------------

    def asked_to_serve(self) -> dict[str, int]:
        if self.ending:
            return {}
        shares = self.told["shares"].items()
        return {
            key: share["epoch"] for key, share in shares if share["state"] in self.served_states
        }

    served_states: tuple[str, ...] = ("Serve",)

    def follow(self) -> None:
        self.serving = self.asked_to_serve()

    def work(self) -> None:
        with WORK_LOG.open("a") as log:
            for key, epoch in self.serving.items():
                for index in self.indexes(key):
                    log.write(json.dumps({"share": key, "index": index, "epoch": epoch}) + "\n")

    def indexes(self, key: str) -> list[int | None]:
        return self.told_indexes(key)

    def told_indexes(self, key: str) -> list[int | None]:
        ranges = self.told["shares"].get(key, {}).get("indexes", "")
        found: list[int | None] = []
        for each in ranges.split(",") if ranges else ():
            first, _, last = each.partition("-")
            found.extend(range(int(first), int(last or first) + 1))
        return found or [None]

    async def working(self) -> None:
        while True:
            self.follow()
            self.work()
            await asyncio.sleep(self.tick_s)

    # -- what is said ------------------------------------------------------------------------------

    def acknowledgement(self) -> Document:
        shares = self.told["shares"]
        let_go = [key for key, share in shares.items() if self.is_to_go(share)]
        return {
            "uid": self.told["uid"],
            "generation": self.told["generation"],
            "serving": [key for key in shares if key in self.serving],
            "drained": [key for key in let_go if key not in self.serving],
        }

    def is_to_go(self, share: Document) -> bool:
        return share["state"] == "Drain" or (share["state"] == "Serve" and self.ending)

    async def speaking(self, session: aiohttp.ClientSession) -> None:
        while True:
            wait_s = 0.12
            self.follow()
            said = self.acknowledgement()
            if said != self.said and said["generation"] >= 0:
                status, retry_after_s = await self.say(session, said)
                if status == 200:
                    self.said = said
                elif status != 409:
                    wait_s = retry_after_s or 0.5
            await asyncio.sleep(wait_s)

    async def say(self, session: aiohttp.ClientSession, said: Document) -> tuple[int, float]:
        try:
            async with session.post(
                f"{URLS[self.at]}/v1/acknowledge", json=said, headers=self.headers()
            ) as reply:
                return reply.status, self.wait_of(reply)
        except (aiohttp.ClientError, TimeoutError):
            self.at = (self.at + 1) % len(URLS)
            return 0, 0.2

    def wait_of(self, reply: aiohttp.ClientResponse) -> float:
        return float(reply.headers.get("Retry-After", 0))

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(FOLDER / 'token').read_text()}"}

    # -- how news arrives --------------------------------------------------------------------------

    async def listening(self, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                await self.listen(session)
            except (aiohttp.ClientError, TimeoutError):
                self.at = (self.at + 1) % len(URLS)
                self.look_at_file()
            await asyncio.sleep(0.2)

    async def listen(self, session: aiohttp.ClientSession) -> None:
        url = f"{URLS[self.at]}/v1/assignment?watch=true"
        limits = aiohttp.ClientTimeout(total=None, sock_read=self.silence_s)
        async with session.get(url, headers=self.headers(), timeout=limits) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                if line.strip() and line.endswith(b"\n"):
                    self.take(line)

    def look_at_file(self) -> None:
        if (FOLDER / "assignment").exists():
            self.take((FOLDER / "assignment").read_bytes())

    # -- the process -------------------------------------------------------------------------------

    def sigterm(self, stopped: asyncio.Event) -> None:
        self.ending = True
        stopped.set()

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(FOLDER / "ca.crt"))

    async def run(self) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.sigterm, stopped)
        connector = aiohttp.TCPConnector(ssl=self.trust())
        limit = aiohttp.ClientTimeout(total=2)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
            tasks = [
                asyncio.create_task(work)
                for work in (self.working(), self.speaking(session), self.listening(session))
            ]
            ended = asyncio.create_task(stopped.wait())
            done, _ = await asyncio.wait({*tasks, ended}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self.follow()
            while self.acknowledgement() != self.said:  # noqa: ASYNC110 (a test)
                await asyncio.sleep(0.02)


class ServesInPrepare(Adapter):
    served_states = ("Serve", "Prepare")


class NeverAcknowledges(Adapter):
    async def speaking(self, session: aiohttp.ClientSession) -> None:
        await asyncio.Event().wait()


class SaysDrainedTooEarly(Adapter):
    """It says so at once, and lets go three seconds later."""

    def asked_to_serve(self) -> dict[str, int]:
        shares = self.told["shares"].items()
        late = {key: share["epoch"] for key, share in shares if self.left_s(share) > 7}
        return super().asked_to_serve() | late

    def left_s(self, share: Document) -> float:
        if share["state"] != "Drain":
            return 0
        return datetime.fromisoformat(share["deadline"]).timestamp() - datetime.now().timestamp()  # noqa: DTZ005

    def acknowledgement(self) -> Document:
        drained = [key for key, share in self.told["shares"].items() if self.is_to_go(share)]
        said = super().acknowledgement()
        serving = [key for key in said["serving"] if key not in drained]
        return said | {"drained": drained, "serving": serving}


class ActsOnOldGenerations(Adapter):
    def is_newer(self, told: Document) -> bool:
        return bool(told["generation"] != self.told["generation"])


class IgnoresTheUid(Adapter):
    def is_ours(self, told: Document) -> bool:
        return True


class ForgetsToDrain(Adapter):
    served_states = ("Serve", "Drain")


class GoesOnWhenAShareIsGone(Adapter):
    def follow(self) -> None:
        self.serving |= self.asked_to_serve()


class EndsAtConflict(Adapter):
    async def say(self, session: aiohttp.ClientSession, said: Document) -> tuple[int, float]:
        status, wait_s = await super().say(session, said)
        if status == 409:
            raise RuntimeError("another generation")
        return status, wait_s


class HammersWhenTooOften(Adapter):
    def wait_of(self, reply: aiohttp.ClientResponse) -> float:
        return 0.01


class IgnoresSigterm(Adapter):
    def sigterm(self, stopped: asyncio.Event) -> None:
        """Nothing."""


class EndsWithoutAWord(Adapter):
    def sigterm(self, stopped: asyncio.Event) -> None:
        os._exit(0)


class KeepsTheEpoch(Adapter):
    """It remembers the epoch with which a share came first."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[str, int] = {}

    def asked_to_serve(self) -> dict[str, int]:
        asked = super().asked_to_serve()
        return {key: self.epochs.setdefault(key, epoch) for key, epoch in asked.items()}


class AcknowledgesAllTheTime(Adapter):
    async def speaking(self, session: aiohttp.ClientSession) -> None:
        while True:
            self.follow()
            if self.told["generation"] >= 0:
                await self.say(session, self.acknowledgement())
            await asyncio.sleep(0.02)


class WaitsForASilentStream(Adapter):
    silence_s = 3600.0


class AsksOneReplica(Adapter):
    async def listening(self, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                await self.listen(session)
            except aiohttp.ClientError:
                self.at = 0
            await asyncio.sleep(0.2)

    async def say(self, session: aiohttp.ClientSession, said: Document) -> tuple[int, float]:
        said_with = await super().say(session, said)
        self.at = 0
        return said_with


class StopsWithoutTheService(Adapter):
    async def listen(self, session: aiohttp.ClientSession) -> None:
        try:
            await super().listen(session)
        except aiohttp.ClientError:
            self.told = self.told | {"shares": {}}
            raise


class NeverReadsTheFile(Adapter):
    def look_at_file(self) -> None:
        """Nothing."""


class PrefersTheFile(Adapter):
    """It takes the file as it is, whatever it has been told by the service."""

    def look_at_file(self) -> None:
        if (FOLDER / "assignment").exists():
            self.told = json.loads((FOLDER / "assignment").read_bytes())


class TrustsEveryServer(Adapter):
    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class TrustsEveryName(Adapter):
    def trust(self) -> ssl.SSLContext:
        context = super().trust()
        context.check_hostname = False
        return context


class KnowsAllFields(Adapter):
    def take(self, document: bytes) -> None:
        told = json.loads(document)
        if unknown := told.keys() - {"generation", "uid", "pod", "shares", "leaseSeconds"}:
            raise ValueError(f"what is {unknown}?")
        super().take(document)


class KnowsAllFieldsOfAShare(Adapter):
    def take(self, document: bytes) -> None:
        for share in json.loads(document)["shares"].values():
            self.read(**share)
        super().take(document)

    def read(
        self, vreplicas, weight, of, epoch, state, peer="", deadline="", intent="", indexes=""
    ) -> None:
        """As a dataclass that has these fields."""


class EndsEachDrainItBegins(Adapter):
    """A drain takes a while. What comes meanwhile is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.draining: dict[str, float] = {}

    def follow(self) -> None:
        for key, share in self.told["shares"].items():
            if share["state"] == "Drain" and key in self.serving:
                self.draining.setdefault(key, time.monotonic() + 0.5)
        self.draining = {k: at for k, at in self.draining.items() if k in self.told["shares"]}
        now, kept = time.monotonic(), self.serving
        self.serving = {
            key: epoch for key, epoch in self.asked_to_serve().items() if key not in self.draining
        } | {key: kept[key] for key, at in self.draining.items() if key in kept and now < at}


class SaysServingTooEarly(Adapter):
    """It says so at once, and begins four seconds later."""

    late_s = 4.0

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[str, float] = {}

    def follow(self) -> None:
        super().follow()
        now = time.monotonic()
        self.since = {key: self.since.get(key, now) for key in self.serving}

    def indexes(self, key: str) -> list[int | None]:
        return super().indexes(key) if time.monotonic() > self.since[key] + self.late_s else []


class SaysServingASecondTooEarly(SaysServingTooEarly):
    late_s = 1.0


class IsHeldUpOnce(SaysServingTooEarly):
    """As on a busy machine: the second share begins a second late, and no other does."""

    late_s = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.second: tuple[str, int] | None = None

    def indexes(self, key: str) -> list[int | None]:
        if self.second is None and len(self.serving) > 1:
            self.second = list(self.serving.items())[1]
        is_second = self.second == (key, self.serving[key])
        return super().indexes(key) if is_second else self.told_indexes(key)


class WorksOnceASecond(Adapter):
    """Its line may come a second after it has said that it serves the share."""

    tick_s = 1.0


class SaysServingTooEarlyAfterPrepare(SaysServingTooEarly):
    """It begins at once unless it has been told to prepare the share."""

    late_s = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.prepared: set[str] = set()

    def follow(self) -> None:
        shares = self.told["shares"].items()
        self.prepared |= {key for key, share in shares if share["state"] == "Prepare"}
        super().follow()

    def indexes(self, key: str) -> list[int | None]:
        return super().indexes(key) if key in self.prepared else self.told_indexes(key)


class PausesForNews(Adapter):
    """All work rests for two seconds at each new generation."""

    rests_s = 2.0
    rests_until = 0.0

    def take(self, document: bytes) -> None:
        before = self.told["generation"]
        super().take(document)
        if self.told["generation"] != before:
            self.rests_until = time.monotonic() + self.rests_s

    def work(self) -> None:
        if time.monotonic() > self.rests_until:
            super().work()


class PausesASecondForNews(PausesForNews):
    rests_s = 1.0


class AcknowledgesTheGenerationBefore(Adapter):
    def acknowledgement(self) -> Document:
        said = super().acknowledgement()
        return said | {"generation": said["generation"] - 1}


class KeepsTheToken(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.token = super().headers()

    def headers(self) -> dict[str, str]:
        return self.token


class CountsItsIndexes(Adapter):
    """It serves as many as it is told, from 0 on."""

    def indexes(self, key: str) -> list[int | None]:
        told = self.told_indexes(key)
        return [*range(len(told))] if told != [None] else told


class KeepsIndexesThatHaveGone(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.had: set[int | None] = set()

    def indexes(self, key: str) -> list[int | None]:
        self.had |= set(self.told_indexes(key))
        return [*self.had]


class DropsIndexesThatStay(Adapter):
    """After a change it serves only what is new."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[int | None] = []
        self.last: list[int | None] = []

    def indexes(self, key: str) -> list[int | None]:
        told = self.told_indexes(key)
        if told != self.last:
            self.before, self.last = self.last, told
        return [index for index in told if index is None or index not in self.before]


class KnowsNoIndexes(Adapter):
    """It is right in pools whose vreplicas are alike."""

    def indexes(self, key: str) -> list[int | None]:
        return [None]


class EndsAtSigterm(Adapter):
    """It lets go when the file ``drain`` is there, and then creates ``drained``. SIGTERM ends it at
    once: docs/adapters.md has the ``preStop`` hook for it.
    """

    def sigterm(self, stopped: asyncio.Event) -> None:
        os._exit(0)

    def follow(self) -> None:
        self.ending = (FOLDER / "drain").exists()
        super().follow()

    async def say(self, session: aiohttp.ClientSession, said: Document) -> tuple[int, float]:
        answered = await super().say(session, said)
        if answered[0] == 200 and set(said["drained"]) == set(self.told["shares"]):
            (FOLDER / "drained").touch()
        return answered


class KeepsItsLease(Adapter):
    """It serves while it has a lease, in pools that need one."""

    renewing: tuple[int, ...] = (200,)

    def __init__(self) -> None:
        super().__init__()
        self.lease_until = 0.0

    def asked_to_serve(self) -> dict[str, int]:
        needs = "leaseSeconds" in self.told
        return {} if needs and time.monotonic() >= self.lease_until else super().asked_to_serve()

    async def say(self, session: aiohttp.ClientSession, said: Document) -> tuple[int, float]:
        sent_at = time.monotonic()
        status, wait_s = await super().say(session, said)
        if status in self.renewing:
            self.lease_until = sent_at + 0.9 * self.told.get("leaseSeconds", 0)
        return status, wait_s

    async def speaking(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().speaking(session))
            while True:
                await asyncio.sleep(self.told.get("leaseSeconds", 3.0) / 3)
                self.said = None  # say it again


class KeepsALeaseThatIsRefused(KeepsItsLease):
    renewing = (200, 409)


class CountsALeaseFromTheAnswer(KeepsItsLease):
    async def say(self, session: aiohttp.ClientSession, said: Document) -> tuple[int, float]:
        status, wait_s = await super().say(session, said)
        if status in self.renewing:
            self.lease_until = time.monotonic() + 0.9 * self.told.get("leaseSeconds", 0)
        return status, wait_s


class TakesALeaseFromNews(KeepsItsLease):
    def take(self, document: bytes) -> None:
        super().take(document)
        self.lease_until = time.monotonic() + 0.9 * self.told.get("leaseSeconds", 0)


class NeedsNoLeaseLater(KeepsItsLease):
    """It looks for leaseSeconds once."""

    needs: bool | None = None

    def take(self, document: bytes) -> None:
        super().take(document)
        if self.needs is None:
            self.needs = "leaseSeconds" in self.told

    def asked_to_serve(self) -> dict[str, int]:
        return super().asked_to_serve() if self.needs else Adapter.asked_to_serve(self)


RIGHT: tuple[type[Adapter], ...] = (
    Adapter,
    KnowsNoIndexes,
    EndsAtSigterm,
    KeepsItsLease,
    IsHeldUpOnce,
    WorksOnceASecond,
)


def kinds_of(adapter: type[Adapter]) -> dict[str, type[Adapter]]:
    """An adapter and all that are made from it, by name."""
    found = {adapter.__name__: adapter}
    for each in adapter.__subclasses__():
        found |= kinds_of(each)
    return found


ADAPTERS = kinds_of(Adapter)

if __name__ == "__main__":
    asyncio.run(ADAPTERS[sys.argv[1]]().run())
