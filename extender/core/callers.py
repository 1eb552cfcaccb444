"""vpods whose callers keep their status: a ledger's key says that it is one of theirs.

Such a vpod is no object that we watch. Its shares stay in the ledgers until its caller gives them back: that we have
not heard of it since we started does not mean that it is gone.
"""

from extender.core.pool_state import PoolState


def is_callers(pool: PoolState, vpod_key: str) -> bool:  # noqa: ARG001
    """Whether a key (``ns/name@source``) is of a source that the pool does not watch."""
    _, _, source = vpod_key.partition("@")
    return bool(source)
