"""Resource versions: which of two objects is the newer one, and whether the API server has gone back in time.

Since Kubernetes 1.35 a resource version is an integer that may be compared. Etcd restored from a backup begins anew before
versions that were seen.
"""

import logging
from typing import Final

from extender.model.errors import HistoryReplaced

_DIGITS_MAX: Final = len(str(2**63))
"""A number of fewer digits is below it."""
_log = logging.getLogger(__name__)


def parse_version(text: str) -> int | None:
    """A resourceVersion as Go's ParseInt(text, 10, 64) reads it; None where it is not one."""
    if len(text) < _DIGITS_MAX and text.isascii() and text.isdigit():
        return int(text)  # all that an API server sends
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits or len(digits) > 40 or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def check_history(what: str, version: str, seen: str) -> None:
    """Raise HistoryReplaced where ``what`` is of a version before one that was ``seen`` of the same.

    A consistent read never goes back, whichever of several API servers answers it. A version that is none tells nothing.
    """
    now, before = parse_version(version), parse_version(seen)
    if now is not None and before is not None and now < before:
        problem = (
            f"{what} is of version {now}, and {before} was seen before: etcd has been restored from a backup, and what "
            "is known here is of the time before that"
        )
        _log.error("%s", problem)
        raise HistoryReplaced(problem)
