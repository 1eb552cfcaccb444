"""``safe_repr``: a value from outside, short enough for a message, whatever it is.

Plain ``repr`` walks the whole value before anything can cut it. It raises RecursionError for a
value that is nested too deep, and ValueError for an int of more than 4,300 digits. It never ends
for a YAML file of a few lines whose aliases stand for billions of values.
"""

import reprlib
from typing import Final

_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


def safe_repr(value: object, chars_max: int = 50) -> str:
    """Return the beginning of a value's ``repr``, at most ``chars_max`` characters. Of lists and
    objects it has a few items.
    """
    if isinstance(value, str):
        return repr(value[:chars_max])[:chars_max]
    try:
        return _REPR.repr(value)[:chars_max]
    except ValueError:
        return "a number with too many digits"
