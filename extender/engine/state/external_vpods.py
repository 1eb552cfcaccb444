"""vpods whose callers keep their status: a ledger's key says that it is one of theirs.

Such a vpod is no object that we watch. Its shares stay in the ledgers until its caller gives them
back: that we have not heard of it since we started does not mean that it is gone. The same holds
for a kind that we watch while its list is not complete.
"""

from extender.engine.state.pool_state import PoolState
from extender.model.foreign_kinds import is_caller_kept, source_of


def may_exist_unseen(pool: PoolState, vpod_key: str) -> bool:
    """Whether it is not for us to say that the vpod of a ledger's key (``ns/name@source``)
    is gone.
    """
    source = source_of(vpod_key)
    return is_caller_kept(pool.adapter_pool, vpod_key) or (
        bool(source) and source not in pool.watched_sources
    )
