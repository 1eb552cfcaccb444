"""``LoadTrouble``: why a pool gets no load from its ``loadSource``. A reason of its condition
``LoadUnavailable``, and a label of the metric ``load_queries``.
"""

from enum import StrEnum


class LoadTrouble(StrEnum):
    """A fixed set of short words."""

    UNKNOWN_SOURCE = "UnknownSource"
    """The configuration has no such source."""
    UNREADABLE_FILE = "UnreadableFile"
    """``caFile`` or ``tokenFile`` cannot be used."""
    UNREACHABLE = "Unreachable"
    """No connection, or a certificate that is not trusted."""
    TIMED_OUT = "TimedOut"
    REFUSED = "QueryRefused"
    """Status 400 to 499: the query is wrong, or the token is not allowed."""
    FAILED = "QueryFailed"
    """Any other status, also a redirect."""
    TOO_LARGE = "AnswerTooLarge"
    UNREADABLE_ANSWER = "AnswerUnreadable"
    NO_SERIES = "NoSeries"
    """No series is about a vreplica that the pool has placed."""
