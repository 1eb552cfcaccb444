"""How acknowledgements leave: at once after a change, and often enough to hold the lease."""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from vreplica_adapter.fields import MEMBERS_MAX, NUMBER_MAX
from vreplica_adapter.machine import Machine
from vreplica_adapter.service import CONFLICT, Service, ServiceError, told_of
from vreplica_adapter.timing import Backoff, Timing
from vreplica_adapter.wire import AnswerDocument, is_key, read_answer, write_acknowledgement


class Speaker:
    """``speak`` is a task that never ends by itself. One acknowledgement is under way at a time, so
    none overtakes another. ``acted`` is called after each that was heard.
    """

    def __init__(
        self,
        service: Service,
        machine: Machine,
        acted: Callable[[], None],
        report: Callable[[str], None],
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._service, self._machine, self._acted = service, machine, acted
        self._report, self._timing, self._clock = report, timing, clock
        self._load: dict[str, float] = {}
        self._load_at = math.inf
        """By when the load is sent."""
        self._spoken_at = -math.inf
        self._at_once = False
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Look whether there is something new to say."""
        self._changed.set()

    def again(self) -> None:
        """Say it, new or not: the service has sent news, and the lease depends on an answer."""
        self._at_once = True
        self._changed.set()

    def report_load(self, load: Mapping[str, float]) -> None:
        """See ``Adapter.report_load``."""
        for key, value in load.items():
            if not is_key(key):
                raise ValueError(f"{key!r:.200} is no share's key: it is namespace/name")
            if not _is_load(value):
                raise ValueError(
                    f"the load of {key} must be a number from 0 to {NUMBER_MAX}, not {value!r:.50}"
                )
        self._load |= load
        while len(self._load) > MEMBERS_MAX:
            del self._load[next(iter(self._load))]
        self._load_at = min(self._load_at, self._clock() + self._timing.load_s)
        self._changed.set()

    async def speak(self) -> None:
        """Acknowledge, again and again."""
        backoff = Backoff(self._timing.retry_s, self._timing.retry_max_s)
        while True:
            await self._until_there_are_words()
            try:
                await self._speak_once()
            except Exception as error:  # noqa: BLE001 (whatever breaks here, what is served goes on)
                self._report(f"not acknowledged: {told_of(error)}")
                asked_s = error.retry_after_s if isinstance(error, ServiceError) else 0.0
                at_most_s = self._machine.part_of_lease(6)
                await asyncio.sleep(min(backoff.next_s(asked_s, at_most_s), at_most_s))
            else:
                backoff.reset()
                await asyncio.sleep(self._timing.pace_s)

    async def _until_there_are_words(self) -> None:
        while True:
            self._changed.clear()
            wait_s = math.inf
            if self._machine.generation >= 0:
                every_s = min(self._timing.speak_s, self._machine.part_of_lease(3))
                wait_s = min(self._spoken_at + every_s, self._load_at) - self._clock()
                if self._at_once or wait_s <= 0 or self._machine.unsaid():
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s if wait_s < math.inf else None):
                    await self._changed.wait()

    async def _speak_once(self) -> None:
        """Raises ServiceError, and WireError if the answer cannot be read."""
        said = self._machine.acknowledgement()
        assert said is not None
        load, self._load, self._load_at = self._load, {}, math.inf
        self._at_once, sent_at = False, self._clock()
        limit_s = min(self._timing.request_s, self._machine.part_of_lease(6))
        ours = {key: value for key, value in load.items() if key in self._machine.shares}
        body = write_acknowledgement(said, ours)
        try:
            generation, ignores_load = await self._newest(body, limit_s)
        except Exception:
            self.report_load(load | self._load)
            raise
        if generation is not None and generation > said.generation:
            self.report_load(load | self._load)
        if ignores_load:
            # The next one goes to another replica, until it is the leader.
            self._service.avoid()
        self._spoken_at = sent_at
        self._machine.acknowledged(said, sent_at, self._clock(), generation)
        self._acted()

    async def _newest(self, body: bytes, limit_s: float) -> AnswerDocument:
        """Return the service's answer; it has taken the body if its generation is not newer. Raises
        ServiceError, and WireError if the answer cannot be read.
        """
        try:
            return read_answer(await self._service.post("/v1/acknowledge", body, limit_s))
        except ServiceError as error:
            if error.status != CONFLICT or error.retry_after_s:
                raise
            return read_answer(error.said.encode())


def _is_load(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= NUMBER_MAX
