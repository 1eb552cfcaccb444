"""The routes for people, as the service wires them (``Answers``), over the verbs' scene: in process
and behind the socket target.

We lead, the placer is not there, and a recording goes on: what it keeps is what happened before the
first input.
"""

import time
from types import SimpleNamespace
from typing import Final

from extender.config.model import Config
from extender.service.http import decision_log
from extender.service.http.answers import Answers, DescribedParts
from extender.service.http.health import Health
from extender.service.http.recording_buffer import ENTRIES_MAX
from extender.service.placing.decision_history import DecisionHistory
from extender.service.pools.load_reports import LoadReports
from extender.whatif.recording.entries import Cause
from tests.fuzz.extender_scene import VerbTarget
from tests.fuzz.extender_targets import Leads
from tests.fuzz.findings import Broken
from tests.support.builders import POOL
from tests.support.placing import place

JOURNAL: Final = "replica-0-1"
"""Of the first recording of ``Leader``."""
WAIT_MAX_S: Final = 0.001
"""Instead of the log's own: what is waited for never comes here."""


class Leader(Leads):
    """As much of ``Leadership`` as the answers ask."""

    identity = "replica-0"

    def leading(self) -> bool:
        return True


class AnswersScene:
    """``Answers`` over the caches of a target, which has no placer. Until ``close``, nobody waits
    long for decisions.
    """

    def __init__(self, target: VerbTarget) -> None:
        placer = SimpleNamespace(history=DecisionHistory("fuzz", lambda: 0.0), on_decided=None)
        world = target.world
        self.answers = Answers(
            DescribedParts(
                target.caches,
                placer,  # type: ignore[arg-type]
                Leader(),  # type: ignore[arg-type]
                Health(list),
                world.metrics,
                LoadReports(lambda: 0.0),
                SimpleNamespace(  # type: ignore[arg-type]
                    describe_waits=lambda _pool, _vpod: [],
                    was_taken_back=lambda _pool, _vpod: False,
                ),
            ),
            Config(),
            now=time.time,
        )
        self.log = self.answers.watchers.decision_log
        self._waits = decision_log.WAIT_MAX_S
        decision_log.WAIT_MAX_S = WAIT_MAX_S  # type: ignore[misc]
        self.log._keep_on()
        pool = target.caches.state.pool(POOL)
        for vpod in pool.vpods.values():
            self.log.decided(Cause.PLACE, place(pool, vpod))

    def check(self) -> None:
        """Raises Broken where something is left of the questions so far."""
        streams = self.answers.page.streams
        if streams.open or streams._feeds or self.log._readers:
            raise Broken(
                f"{streams.open} streams, {len(streams._feeds)} feeds, {self.log._readers} readers "
                f"are left"
            )
        if len(self.log.ring._kept) > ENTRIES_MAX:
            raise Broken(f"{len(self.log.ring._kept)} entries are kept")

    def close(self) -> None:
        """Nobody records any more."""
        decision_log.WAIT_MAX_S = self._waits  # type: ignore[misc]
        self.answers.close()
