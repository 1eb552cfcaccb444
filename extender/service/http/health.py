"""Whether this replica answers, as the probes and the verbs see it."""

from collections.abc import Callable


class Health:
    """What the probes answer. ``not_ready`` returns why the service is not ready; [] if it is."""

    def __init__(self, not_ready: Callable[[], list[str]]) -> None:
        self._not_ready = not_ready
        self.stopping = False
        """No new requests should be sent here, but they are still answered."""
        self.draining = False
        """New requests are refused."""

    def problems(self) -> list[str]:
        """Why requests should not be sent here."""
        return ["shutting down"] if self.stopping else self._not_ready()

    def refusal(self) -> str:
        """Why verbs are not answered now; "" if they are."""
        if self.draining:
            return "shutting down"
        return next(iter(self._not_ready()), "")
