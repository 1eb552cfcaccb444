"""What cannot be listed or watched, logged only as often as it helps.

Every kind has its own reflector, and each tries again for ever. A missing right or CRD would log a
line per kind every few seconds. So a trouble of a kind is logged once and then at growing
intervals, and a fix once for all kinds that need it. A trouble that was quiet for longer than the
next interval is logged as new.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from extender.kube.api import ApiError, Resource
from extender.kube.first_errors import listing_trouble

AGAIN_AFTER_S: Final = 60.0
AGAIN_AFTER_MAX_S: Final = 600.0


@dataclass(slots=True)
class _Logged:
    due_at: float
    pause_s: float
    """From ``due_at`` to the time after it."""


class Troubles:
    """Troubles of reflectors that share an API server. Times are the event loop's, in seconds."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, _Logged] = {}

    def line(self, resource: Resource, error: ApiError, now_s: float) -> str:
        """What to log now; "" if it was logged lately."""
        trouble = listing_trouble(resource, error)
        if not self._is_due((resource.plural, type(error), error.status, error.reason), now_s):
            return ""
        return trouble.line if trouble.fix and self._is_due(trouble.fix, now_s) else trouble.problem

    def _is_due(self, key: Hashable, now_s: float) -> bool:
        logged = self._logged.get(key)
        if logged is None or now_s > logged.due_at + logged.pause_s:
            self._logged[key] = _Logged(now_s + AGAIN_AFTER_S, 2 * AGAIN_AFTER_S)
            return True
        if now_s < logged.due_at:
            return False
        logged.due_at, logged.pause_s = (
            now_s + logged.pause_s,
            min(2 * logged.pause_s, AGAIN_AFTER_MAX_S),
        )
        return True
