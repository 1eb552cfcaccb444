"""Detects an etcd that was restored from a backup: its history begins anew before what was seen."""

import logging

from extender.model.errors import HistoryReplaced
from extender.model.resource_versions import parse_version

_log = logging.getLogger(__name__)


def check_history(what: str, version: str, seen: str) -> None:
    """Raise HistoryReplaced if ``what`` has a version before ``seen``, which was seen of it
    earlier.

    A consistent read never goes back, whichever of several API servers answers it. A text that is
    not a version is ignored.
    """
    now, before = parse_version(version), parse_version(seen)
    if now is not None and before is not None and now < before:
        problem = (
            f"{what} is of version {now}, and {before} was seen before: etcd has been restored "
            f"from a backup, and what "
            "is known here is of the time before that"
        )
        _log.error("%s", problem)
        raise HistoryReplaced(problem)
