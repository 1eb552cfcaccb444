"""Times as the API writes them: RFC 3339, in UTC."""

from datetime import UTC, datetime


def timestamp(epoch_s: float, timespec: str = "seconds") -> str:
    """A metav1.Time of epoch seconds: whole seconds, or as ``datetime.isoformat`` names them."""
    return f"{datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec=timespec)[:-6]}Z"


def micro_time(epoch_s: float) -> str:
    """A metav1.MicroTime."""
    return timestamp(epoch_s, "microseconds")
