"""``ReadOnlyApi``: an ``Api`` that refuses every write. Shadow mode runs on it.

Whatever a part of the service tries, the API server sees only lists, watches and gets. A write,
also of an event or a lease, is refused before anything is sent, with an error that says so, and
counted.
"""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from extender.kube.api import Api, Forbidden
from extender.kube.forwarding import WRITE_VERBS, ApiCall, ForwardingApi

T = TypeVar("T")

log: Final = logging.getLogger(__name__)


class WriteRefused(Forbidden):
    """A write in shadow mode. It had no effect, and a retry would have none."""

    def __init__(self, verb: str, what: str) -> None:
        super().__init__(
            403,
            "ShadowMode",
            f"{verb} of {what} refused: shadow mode writes nothing (mode: active would)",
        )


class ReadOnlyApi(ForwardingApi):
    """Reads go to ``api``; every write raises WriteRefused. ``refused`` counts those by verb."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.refused: Counter[str] = Counter()

    async def _forward(self, call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if call.verb not in WRITE_VERBS:
            return await send()
        self.refused[call.verb] += 1
        error = WriteRefused(call.verb, _what(call))
        log.warning("%s", error)
        raise error


def _what(call: ApiCall) -> str:
    kind = "pod" if call.verb == "bind" else call.collection
    return f"{kind} {call.namespace}/{call.name}" if call.namespace else f"{kind} {call.name}"
