"""Times as the API writes them: RFC 3339, in UTC."""

from datetime import UTC, datetime


def timestamp(epoch_s: float, timespec: str = "seconds") -> str:
    """Epoch seconds as a metav1.Time. ``timespec``: as for ``datetime.isoformat``."""
    return f"{datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec=timespec)[:-6]}Z"


def micro_time(epoch_s: float) -> str:
    """Epoch seconds as a metav1.MicroTime."""
    return timestamp(epoch_s, "microseconds")


def epoch_s(text: str, default: float) -> float:
    """An RFC 3339 time in epoch seconds; ``default`` if it is none, or has no time zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return default
    return when.timestamp() if when.tzinfo is not None else default
