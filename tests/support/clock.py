"""A clock that the test sets."""

from dataclasses import dataclass


@dataclass
class Clock:
    """``clock()`` is ``clock.now``, in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
