"""``shown``: a value from outside as a message may have it, short whatever it is.

``repr`` alone will not do: it walks the whole value before anything can cut it. A value nested too
deep ends in a RecursionError, an int of more than 4,300 digits in a ValueError, and a YAML file of
a few lines whose aliases stand for billions of values never.
"""

import reprlib
from typing import Final

_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


def safe_repr(value: object, chars_max: int = 50) -> str:
    """The beginning of a value's ``repr``, of lists and objects with a few of their items; at most
    ``chars_max`` characters.
    """
    if isinstance(value, str):
        return repr(value[:chars_max])[:chars_max]
    try:
        return _REPR.repr(value)[:chars_max]
    except ValueError:
        return "a number with too many digits"
