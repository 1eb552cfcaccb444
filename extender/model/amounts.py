"""Capacity dimensions beside slots, such as cpu or memory: what a vreplica takes in each of them.

A pool names its dimensions and what each of its pods has (``AdapterPool.capacities``). A vpod says
what one vreplica takes (``VPod.per_vreplica``). Amounts are whole numbers. The pool's owner chooses
the unit, for example millicores or MiB: nothing here converts units.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from extender.model.errors import InvalidObject
from extender.model.names import KEY_BYTES_MAX
from extender.model.safe_repr import safe_repr

Amounts = tuple[tuple[str, int], ...]
"""(dimension, amount), sorted by dimension, each once, without zeros."""
NO_AMOUNTS: Final[Amounts] = ()
DIMENSIONS_MAX: Final = 4
AMOUNT_MAX: Final = 2**31 - 1
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
SLOTS: Final = "slots"
"""Stands for slots among dimensions. No dimension has this name: it would be mistaken for
slotsPerPod.
"""


def amounts_problem(raw: object) -> str:
    """Why a decoded JSON value is no mapping of dimensions to amounts, "" if it is one."""
    if not isinstance(raw, Mapping):
        return "must be an object: dimension -> whole number"
    if len(raw) > DIMENSIONS_MAX:
        return f"must have at most {DIMENSIONS_MAX} dimensions"
    for name, amount in raw.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == SLOTS:
            return (
                f"{safe_repr(name)} is no name of a dimension: must be 1 to 31 of a-z, 0-9 and -, "
                f"begin with a letter, and not be {SLOTS!r}"
            )
        if type(amount) is not int or not 1 <= amount <= AMOUNT_MAX:
            return f"{name} must be an integer from 1 to {AMOUNT_MAX}, not {safe_repr(amount)}"
    return ""


def amounts_from(raw: object, subject: str, field: str) -> Amounts:
    """Read a mapping of dimensions to amounts; None is no dimension. Raises InvalidObject."""
    if raw is None:
        return NO_AMOUNTS
    if problem := amounts_problem(raw):
        raise InvalidObject(subject, field, problem)
    return tuple(sorted(raw.items())) if isinstance(raw, Mapping) else NO_AMOUNTS


def named_amounts(raw: object, subject: str, field: str, *, key: str) -> Amounts:
    """Read the amounts of a foreign kind's object, or of a caller's. A ledger has room for a long
    name or for long amounts, so both together may take ``KEY_BYTES_MAX``. Raises InvalidObject.
    """
    amounts = amounts_from(raw, subject, field)
    if amounts and len(key) + amounts_bytes(amounts) > KEY_BYTES_MAX:
        raise InvalidObject(
            subject,
            field,
            f"takes {amounts_bytes(amounts)} bytes of a ledger beside a name of {len(key)}, and "
            f"both together may take {KEY_BYTES_MAX}: use shorter names of dimensions",
        )
    return amounts


def amounts_bytes(amounts: Amounts) -> int:
    """The most bytes by which amounts lengthen a ledger's entry: ``,{"cpu":2147483647}``."""
    return 2 + sum(len(name) + 14 for name, _ in amounts) if amounts else 0


def times(amounts: Amounts, vreplicas: int) -> Amounts:
    """What so many vreplicas take together."""
    if not vreplicas:
        return NO_AMOUNTS
    return tuple((name, amount * vreplicas) for name, amount in amounts)


def most_of(amounts: Iterable[Amounts]) -> Amounts:
    """The greatest amount in each dimension."""
    most: dict[str, int] = {}
    for one in amounts:
        for name, amount in one:
            most[name] = max(amount, most.get(name, 0))
    return tuple(sorted(most.items()))


def least_of(one: Amounts, other: Amounts) -> Amounts:
    """The smaller amount in each dimension. What only one of them has is none."""
    others = dict(other)
    return tuple((name, min(amount, others[name])) for name, amount in one if name in others)


def add_to(sums: dict[str, int], amounts: Amounts, sign: int = 1) -> None:
    """Add amounts to sums, or take them away. A sum of 0 is forgotten."""
    for name, amount in amounts:
        if total := sums.get(name, 0) + sign * amount:
            sums[name] = total
        else:
            sums.pop(name, None)
