"""How a rule ends that is not kept, and how long an adapter may take."""

from dataclasses import dataclass


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
    work_s: float = 2.5
    """Between two pieces of work on a share that is served: tenants always have work."""
    log_s: float = 5.0
    """Until an adapter without a line of work counts as one that writes none."""
    silence_s: float = 50.0
    """From the last sign of life on a stream to the next acknowledgement. The library gives a
    stream up after 30 s.
    """
    grace_s: float = 28.0
    """From SIGTERM to its end. The kubelet kills after 30 s unless the pod says otherwise."""
