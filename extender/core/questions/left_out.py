"""What a question about pools cannot count in, and has to say: vpods of pools that do not exist, pods that are no ordinals."""

from collections.abc import Iterator
from typing import Final

from extender.core.counted import counted
from extender.core.pool_state import PoolState
from extender.core.state import State

NAMED: Final = 5


def pools_asked(state: State) -> list[str]:
    """All AdapterPools, and pools that vpods ask for and nobody has made: their vreplicas wait, too."""
    return sorted(key for key, pool in state.pools.items() if pool.pool is not None or pool.vpods)


def left_out(pool: PoolState) -> Iterator[str]:
    """In words, what of a pool counts for nothing."""
    if pool.pool is None and pool.vpods:
        count = len(pool.vpods)
        asks = "vpod asks" if count == 1 else "vpods ask"
        yield f"pool {pool.key} does not exist: {count} {asks} for it ({_named(sorted(pool.vpods))}) and {'gets' if count == 1 else 'get'} nothing"
    if pool.pool is None or pool.stateful_set is None:
        return
    own = {pod.name for pod in pool.members()}
    others = [name for name, pod in pool.pods.items() if pod.pod is not None and name not in own]
    if others:
        are = "pod is" if len(others) == 1 else "pods are"
        yield (
            f"pool {pool.key}: {len(others)} {are} beyond the {counted(len(pool.stateful_set.ordinals), 'replica')} of StatefulSet "
            f"{pool.stateful_set.name} and count{'s' if len(others) == 1 else ''} for nothing: {_named(sorted(others))}"
        )


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
