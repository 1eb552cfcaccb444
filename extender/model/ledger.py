"""The ledger: the vreplicas that an adapter pod carries, as its placements annotation lists them.

The annotation is compact JSON with sorted keys: ``{"<ns>/<vpod>": vreplicas}``. If one vreplica
takes more than one slot, the value is ``[vreplicas, slotsPerVReplica]``. If it also takes amounts
of the pool's dimensions, the value is ``[vreplicas, slotsPerVReplica, {"cpu": 250}]``. So the slots
and amounts of a ledger can be summed without any other object. A release that does not know
dimensions finds such a ledger unreadable.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from extender.model.amounts import NO_AMOUNTS, SLOTS, Amounts, add_to, amounts_problem, times
from extender.model.errors import LedgerTooLarge, LedgerUnreadable
from extender.model.names import LEDGER_BYTES_MAX

_INT32_MAX: Final = 2**31 - 1
SHARES_REMEMBERED: Final = 4096
"""Size of the cache of ``share_of``."""


class Share(NamedTuple):
    """The vreplicas of one vpod on one pod. Each takes ``weight`` slots, and ``amounts`` of the
    pool's dimensions.
    """

    vreplicas: int
    weight: int = 1
    amounts: Amounts = NO_AMOUNTS

    @property
    def slots(self) -> int:
        """The slots that this share takes."""
        return self.vreplicas * self.weight

    @property
    def taken(self) -> Amounts:
        """What this share takes, of ``SLOTS`` and each dimension."""
        return ((SLOTS, self.slots), *times(self.amounts, self.vreplicas))

    def is_heavier_than(self, other: "Share") -> bool:
        """Whether this share takes more slots than the other, or more of any dimension."""
        if self.slots > other.slots:
            return True
        if not self.amounts:
            return False
        taken = dict(other.amounts)
        return any(
            amount * self.vreplicas > taken.get(name, 0) * other.vreplicas
            for name, amount in self.amounts
        )


@lru_cache(maxsize=SHARES_REMEMBERED)
def share_of(vreplicas: int, weight: int = 1, amounts: Amounts = NO_AMOUNTS) -> Share:
    """Return a share. Equal shares are mostly one object: a cluster has many, and few differ."""
    return Share(vreplicas, weight, amounts)


Ledger = Mapping[str, Share]
"""vpod key (``ns/name``, or ``ns/name@kind.group``) -> its share, which is never zero."""

EMPTY_LEDGER: Final[Ledger] = MappingProxyType({})


def ledger_slots(ledger: Ledger) -> int:
    """The slots that a whole ledger takes."""
    return sum(share.vreplicas * share.weight for share in ledger.values())


def ledger_amounts(ledger: Ledger) -> dict[str, int]:
    """Dimension -> what a whole ledger takes of it; never 0."""
    sums: dict[str, int] = {}
    for share in ledger.values():
        if share.amounts:
            add_to(sums, times(share.amounts, share.vreplicas))
    return sums


def encode_ledger(ledger: Ledger) -> str:
    """Return the annotation's text for a ledger.

    Raises LedgerTooLarge if the text has more than ``LEDGER_BYTES_MAX`` bytes.
    """
    plain = {key: _plain(share) for key, share in ledger.items() if share.vreplicas > 0}
    text = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    if len(text) > LEDGER_BYTES_MAX:
        raise LedgerTooLarge(len(text), LEDGER_BYTES_MAX)
    return text.decode()


def _plain(share: Share) -> object:
    if share.amounts:
        return share.vreplicas, share.weight, dict(share.amounts)
    return share.vreplicas if share.weight == 1 else (share.vreplicas, share.weight)


def decode_ledger(text: str | None) -> Ledger:
    """Read an annotation's text. An absent or empty text is the empty ledger.

    A share of 0 vreplicas is left out. Raises LedgerUnreadable, for instance if a person has edited
    the annotation, or a newer release has written it. The caller reports and repairs it.
    """
    if not text:
        return EMPTY_LEDGER
    # A character takes at most four bytes, so few texts have to be encoded to be measured.
    if (
        len(text) * 4 > LEDGER_BYTES_MAX
        and (size := len(text.encode("utf-8", "replace"))) > LEDGER_BYTES_MAX
    ):
        raise LedgerUnreadable(f"{size} bytes are over the limit of {LEDGER_BYTES_MAX}")
    try:
        plain = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise LedgerUnreadable(f"not JSON: {error}") from error
    if not isinstance(plain, dict):
        raise LedgerUnreadable(f"not a JSON object but {type(plain).__name__}")
    ledger: dict[str, Share] = {}
    for key, value in plain.items():
        # Almost every value is a plain count: the first case of ``_share``, for speed.
        plainly = type(value) is int and 0 < value <= _INT32_MAX
        share = share_of(value) if plainly else _share(key, value)
        if share.vreplicas:
            ledger[key] = share
    return MappingProxyType(ledger)


def _share(key: str, value: object) -> Share:
    match value:
        case bool():
            pass
        case int() if 0 <= value <= _INT32_MAX:
            return share_of(value)
        case [int() as vreplicas, int() as weight] if (
            type(vreplicas) is int
            and type(weight) is int
            and 0 <= vreplicas <= _INT32_MAX
            and 1 <= weight <= _INT32_MAX
        ):
            return share_of(vreplicas, weight)
        case [int() as vreplicas, int() as weight, dict() as amounts] if (
            amounts and not amounts_problem(amounts)
        ):
            whole = _share(key, [vreplicas, weight])
            return share_of(whole.vreplicas, whole.weight, tuple(sorted(amounts.items())))
        case _:
            pass
    raise LedgerUnreadable(
        f"value of {key[:200]!r} is not a count, [count, slotsPerVReplica] or "
        "[count, slotsPerVReplica, {dimension: amount}]"
    )
