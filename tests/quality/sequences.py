"""What sequences of moves can place: every order of single moves from where a pool stands, each to
a pod that has room at that moment, because a destination's ledger is written before the source's.

Zones and vpods do not count, so it is for profiles without a rule. Pods with the same content are
the same.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from tests.quality.instances import SLOTS
from tests.quality.solver import Answer, Load

Pod = tuple[int, ...]
"""The weights of its vreplicas, ascending."""
State = tuple[tuple[Pod, ...], Pod]
"""The pods, and the weights that wait."""
STATES_MAX: Final = 20_000


def least_waiting(held: Sequence[Load], missing: Load) -> Answer:
    """The fewest vreplicas that wait after any sequence of moves. ``held``: of each pod.

    Not proven, if there are more than ``STATES_MAX`` states.
    """
    begin = (tuple(sorted(map(_flat, held))), _flat(missing))
    seen, queue, least = {begin}, deque([begin]), len(begin[1])
    while queue and least:
        state = queue.popleft()
        least = min(least, len(state[1]))
        for after in _after(state):
            if after not in seen:
                seen.add(after)
                queue.append(after)
        if len(seen) > STATES_MAX:
            return Answer(least, proven=not least)
    return Answer(least, proven=True)


def _flat(load: Load) -> Pod:
    return tuple(sorted(weight for weight, count in load.items() for _ in range(count)))


def _after(state: State) -> Iterator[State]:
    pods, waiting = state
    for target in _different(pods):
        free = SLOTS - sum(pods[target])
        for weight in {*waiting}:
            if weight <= free:
                yield _with(pods, {target: (*pods[target], weight)}), _without(waiting, weight)
        for first in _different(pods):
            # From a pod like the target: the next one of these, if there are more.
            source = first + 1 if first == target else first
            if source == len(pods) or pods[source] != pods[first]:
                continue
            for weight in {*pods[source]}:
                if weight <= free:
                    changed = {
                        source: _without(pods[source], weight),
                        target: (*pods[target], weight),
                    }
                    yield _with(pods, changed), waiting


def _different(pods: Sequence[Pod]) -> Iterator[int]:
    """The first index of each content."""
    return (index for index, pod in enumerate(pods) if not index or pods[index - 1] != pod)


def _without(weights: Pod, weight: int) -> Pod:
    index = weights.index(weight)
    return weights[:index] + weights[index + 1 :]


def _with(pods: Sequence[Pod], changed: dict[int, Pod]) -> tuple[Pod, ...]:
    after = (tuple(sorted(changed.get(index, pod))) for index, pod in enumerate(pods))
    return tuple(sorted(after))
