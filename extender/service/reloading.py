"""Reloads the configuration file while the service runs.

Every ``RELOAD_PERIOD_S`` it compares the modification time, inode and size of the file, and of each
file that it refers to, with those from before the last reading, as ``tls`` does for certificates.
So it also notices when a mounted ConfigMap is swapped, during a reading too. It reads a changed
file whole, off the event loop, and checks it as at a start. Then

- if the file is wrong, the old settings stay. The reason is logged, counted and shown in
  ``/state.json``;
- if it is good, its live settings (``config.reload``) are applied together, in one step that
  nothing can interrupt;
- settings that need a restart are named in the log, in ``config_needs_restart`` and in
  ``/state.json``, until the file agrees again with what is in force. Profiles belong to these:
  replicas with different profiles would move vreplicas back and forth.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from extender.config.document import stamps_of
from extender.config.model import Config
from extender.config.profiles import WatchedContent
from extender.config.reload import merge
from extender.config.settings import SETTINGS
from extender.kube.budget import Budget
from extender.model.errors import VReplicaError
from extender.telemetry.exposition import Label
from extender.telemetry.logs import LogFormat, format_in_use, use_format
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

RELOAD_PERIOD_S: Final = 10.0
APPLIED: Final = "applied"
NEEDS_RESTART: Final = "needs_restart"
REFUSED: Final = "refused"
RESULTS: Final = (APPLIED, NEEDS_RESTART, REFUSED)
PROFILES: Final = "profiles"


class Watched(NamedTuple):
    """``first``: the configuration that the service started with. ``read`` reads the file again,
    and raises VReplicaError if it is wrong.
    """

    first: WatchedContent
    read: Callable[[], WatchedContent]


class Reloading:
    """Keeps a service's settings up to date with its file."""

    def __init__(
        self,
        watched: Watched,
        *,
        apply: Sequence[Callable[[Config], None]],
        metrics: Metrics,
    ) -> None:
        """``apply``: called with each new configuration; each takes the settings that it uses."""
        first, self._read = watched
        self._apply = tuple(apply)
        self._files = first.files
        self._imported_digest = first.imported_digest
        self._seen = first.stamps
        self.config = first.config
        """In force."""
        self.waiting: tuple[str, ...] = ()
        """Settings that the file has changed and that need a restart."""
        self.problem = ""
        """Why the present file is not used; "" if it is."""
        self.results: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._add_metrics(metrics)

    async def run(self) -> None:
        """Reload whenever a file has changed, until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_PERIOD_S)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> bool:
        """Check the files once. True if a changed file was read, good or not."""
        stamps = await asyncio.to_thread(stamps_of, self._files)
        if stamps == self._seen:
            return False
        # Set before reading: the next check then notices a change during the reading.
        self._seen = stamps
        try:
            reading = await asyncio.to_thread(self._read)
        except VReplicaError as error:
            self._refuse(str(error))
            return True
        except Exception as error:  # noqa: BLE001 - reading asks plug-ins of others, and a file must not end what runs
            self._refuse(f"{type(error).__name__}: {error}")
            return True
        self._take(reading)
        self._files, self._seen = reading.files, reading.stamps
        return True

    def describe(self) -> dict[str, object]:
        """For ``/state.json``."""
        return {"file": self._files[0], "needsRestart": list(self.waiting), "problem": self.problem}

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        self.results[REFUSED] += 1
        log.warning("configuration not reloaded, the old one stays: %s", problem)

    def _take(self, reading: WatchedContent) -> None:
        """Apply all live settings or none. Must not await."""
        merged = merge(self.config, reading.config)
        waiting = set(merged.waiting)
        if reading.imported_digest != self._imported_digest:
            waiting.add(PROFILES)
        self.problem = ""
        self.waiting = tuple(sorted(waiting))
        if merged.taken:
            # Logged before the log level may change.
            log.info("configuration reloaded from %s: %s", self._files[0], ", ".join(merged.taken))
            self.config = merged.config
            for take in self._apply:
                take(merged.config)
            self.results[APPLIED] += 1
        if self.waiting:
            self.results[NEEDS_RESTART] += 1
            log.warning(
                "configuration %s: needs a restart: %s", self._files[0], ", ".join(self.waiting)
            )

    def _add_metrics(self, metrics: Metrics) -> None:
        metrics.counter(
            "config_reloads",
            "Times that a changed configuration file was read, by result",
            Label("result", RESULTS),
            lambda: self.results,
        )
        metrics.gauge(
            "config_needs_restart",
            "1 for each setting that the configuration file has changed and that needs a restart",
            Label("setting", tuple(entry.path for entry in SETTINGS)),
            lambda: dict.fromkeys(self.waiting, 1.0),
        )
        metrics.gauge(
            "config_last_reload_successful",
            "0 while the configuration file as it is now cannot be used",
            None,
            lambda: float(not self.problem),
        )


def change_of_budget(budget: Budget) -> Callable[[Config], None]:
    """Return a function that applies clientConnection.qps and burst."""

    def take(config: Config) -> None:
        budget.change(config.client_connection.qps, config.client_connection.burst)

    return take


def change_of_log(config: Config) -> Callable[[Config], None]:
    """Apply logging.level and logging.format of ``config``, and return a function that applies
    later ones. Where a configuration leaves them out, the present level and format count.
    """
    root = logging.getLogger()
    started_at, started_as = root.level, format_in_use()

    def take(new: Config) -> None:
        root.setLevel(new.log_level.upper() or started_at)
        use_format(LogFormat(new.log_format or started_as))

    take(config)
    return take
