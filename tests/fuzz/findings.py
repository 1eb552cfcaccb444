"""What a fuzzed input may do, and what is a bug.

A target answers with an *outcome*: a short text about what was decided ("200 passed", "WireError
400 Pod: expected ..."). Values from the input are taken out of it, so that equal ways through the
code give equal outcomes, and the corpus keeps one input for each. Whatever else a target does - an
exception that it does not document, a broken promise (``Broken``), too much time or memory - is a
``Finding``.
"""

import re
import sys
import traceback
from dataclasses import dataclass
from typing import Final

OUTCOME_CHARS_MAX: Final = 120
TEXT_CHARS_MAX: Final = 400
"""Of a text that is looked at: one may quote a whole body, and what tells two apart is at the
beginning.
"""
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”")
_NUMBER: Final = re.compile(r"[0-9]+")
_UNKNOWN: Final = (": is not known", ": unknown field", ": expected once")
"""What follows a key that the input has made up."""
_STRANGE: Final = re.compile(r"[^ -~]+")


class Broken(AssertionError):
    """A target has broken a promise; the text says which."""


class Hung(BaseException):
    """An input took longer than any may. Of BaseException, so that no handler of the tested code
    swallows it.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """A bug: ``kind`` groups those that are probably the same."""

    target: str
    kind: str
    detail: str
    data: bytes

    def told(self) -> str:
        """For people."""
        return f"  FOUND {self.kind}\n    {self.detail}\n    {self.data[:2000]!r}"


def say(line: str) -> None:
    """Print a line now: a run may take hours."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def outcome_of(error: Exception, *, known: str = "") -> str:
    """An expected error as an outcome: its type, its HTTP status if any, and its text without the
    input's own words.

    ``known``: a text that is left out, as the path of a temporary file.
    """
    status = getattr(error, "status", "")
    return general(f"{type(error).__name__} {status} {str(error)[:1000].replace(known, '')}")


def general(text: str) -> str:
    """A text without quoted words, numbers and strange characters."""
    text = text[:TEXT_CHARS_MAX]
    for problem in _UNKNOWN:
        before, found, after = text.partition(problem)
        if found:
            head, space, _ = before.rpartition(": ") if ": " in before else before.rpartition(" ")
            text = f"{head}{space}KEY{found}{after}"
    text = _STRANGE.sub("?", _NUMBER.sub("N", _QUOTED.sub("Q", text)))
    return text[:OUTCOME_CHARS_MAX]


def crash_kind(error: BaseException) -> str:
    """The type of an exception and where in our code it was raised: equal for the same bug."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tests/fuzz/" not in frame.filename] or list(frames)
    names = [f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in ours]
    # The innermost frame may be the standard library's: the function of ours that called it says
    # more.
    ours_at = [
        name
        for frame, name in zip(ours, names, strict=True)
        if re.search(r"/(extender|webhook)/", frame.filename)
    ]
    place = (ours_at or names or ["?"])[-1]
    return f"{type(error).__name__} in {place}"
