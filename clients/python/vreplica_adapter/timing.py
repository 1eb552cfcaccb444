"""How often, and how long."""

import math
import random
import time
from dataclasses import dataclass


def running_and_suspended_s() -> float:
    """A clock in seconds that goes on while the machine is suspended, where there is one. A lease
    ends meanwhile, and time.monotonic stands still.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    request_s: float = 5.0
    """A request, and a stream's first line, which may be empty."""
    idle_s: float = 30.0
    """A stream without a line. Then it is opened anew. The service sends one each 10 s."""
    retry_s: float = 0.2
    """The first wait after a failure. It doubles."""
    retry_max_s: float = 10.0
    """The longest wait after a failure. A sixth of the lease if that is less: a pod that has lost
    its lease does no work.
    """
    file_after_s: float = 2.0
    """From the start to the first look at the file, if replicas neither answer nor refuse."""
    poll_s: float = 1.0
    """Between two looks at the file."""
    pace_s: float = 0.1
    """Between two acknowledgements, at least."""
    speak_s: float = 30.0
    """Between two acknowledgements, at most. A third of the lease if that is less."""
    load_s: float = 10.0
    """From ``report_load`` to the acknowledgement that has it, at most."""


class Backoff:
    """Waits that double from ``first_s`` to ``last_s``, each between half of it and all of it by
    chance, so that many who failed at once do not come back at once.
    """

    def __init__(self, first_s: float, last_s: float, chance: random.Random | None = None) -> None:
        self._first_s, self._last_s = first_s, last_s
        self._wait_s = first_s
        self._chance = chance or random.Random()

    def next_s(self, at_least_s: float = 0.0, at_most_s: float = math.inf) -> float:
        """Return the next wait, at least what the service asked for, and at most ``last_s``.
        ``at_most_s`` limits what has doubled, not what was asked for.
        """
        wait_s = min(self._wait_s, at_most_s) * self._chance.uniform(0.5, 1.0)
        self._wait_s = min(2 * self._wait_s, self._last_s)
        return max(wait_s, min(at_least_s, self._last_s))

    def reset(self) -> None:
        """Begin with ``first_s`` again."""
        self._wait_s = self._first_s
