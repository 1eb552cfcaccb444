"""Shortens times and identities for tables in a terminal of 80 characters. ``-o json`` has them
whole.
"""

import re
from datetime import UTC, datetime
from typing import Final

IDENTITY_CHARS_MAX: Final = 20
_UUID: Final = re.compile(r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def short_time(time: str, now: datetime) -> str:
    """Format an RFC 3339 time as ``HH:MM:SS`` in UTC, with the date if it is not today. Other texts
    are returned unchanged.
    """
    try:
        at = datetime.fromisoformat(time).astimezone(UTC)
    except ValueError:
        return time
    return (
        f"{at:%H:%M:%S}" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d %H:%M:%S}"
    )


def short_identity(identity: str) -> str:
    """Shorten a replica's identity (``HOSTNAME_UUID``): drop the UUID, which differs at each start,
    and the middle of a long name.
    """
    host = _UUID.sub("", identity)
    if len(host) <= IDENTITY_CHARS_MAX:
        return host
    half = (IDENTITY_CHARS_MAX - 1) // 2
    return f"{host[:half]}\u2026{host[-half:]}"
