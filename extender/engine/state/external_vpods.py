"""vpods whose callers keep their status: the key in a ledger shows that a vpod is one of them.

Such a vpod is no object that we watch. Its shares stay in the ledgers until its caller gives them
back. It may exist even if nobody has asked about it since this process started. The same holds for
a kind that we watch, until its list is complete.
"""

from extender.engine.state.pool_state import PoolState
from extender.model.foreign_kinds import is_caller_kept, source_of


def may_exist_unseen(pool: PoolState, vpod_key: str) -> bool:
    """Whether the vpod of a ledger's key (``ns/name@source``) may exist although the state lacks
    it.
    """
    source = source_of(vpod_key)
    return is_caller_kept(pool.adapter_pool, vpod_key) or (
        bool(source) and source not in pool.watched_sources
    )
