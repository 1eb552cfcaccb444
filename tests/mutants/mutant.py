"""``Mutant``: one deliberate break of the code, and what has to catch it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SIMULATE: Final = "simulate "


class DoesNotApply(Exception):
    """The text to be replaced is not there exactly once: the code has changed, and the mutant has
    to be looked at again.
    """


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands exactly once in ``file`` (path from the root) and becomes ``new``.

    It is looked for token by token: comments and how lines are broken do not matter.

    ``caught_by``: pytest node ids, with parameters or without, of which one has to fail; and
    arguments of ``vreplica`` that begin with ``simulate``, each of which has to find something by
    itself.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    caught_by: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """The broken text. Raises DoesNotApply."""
        found = list(_places(_tokens(self.old), _tokens(text)))
        if len(found) != 1:
            raise DoesNotApply(
                f"{self.name}: its code stands {len(found)} times in {self.file}; look at the "
                f"mutant again"
            )
        start, end = found[0]
        return text[:start] + self.new.strip() + text[end:]

    @property
    def tests(self) -> list[str]:
        """The node ids among what is to catch it."""
        return [catcher for catcher in self.caught_by if not catcher.startswith(SIMULATE)]

    @property
    def simulations(self) -> list[str]:
        """The simulations among what is to catch it."""
        return [catcher for catcher in self.caught_by if catcher.startswith(SIMULATE)]


_TOKEN: Final = re.compile(
    r'''[rbf]*(?:"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')'''
    r"|\#[^\n]*|\w+|[^\w\s]",
    re.DOTALL,
)
"""Also of a part of a statement: brackets need not be closed, as the tokenizer of the standard
library would have them.
"""
_CLOSING: Final = frozenset(")]}")


class _Token(NamedTuple):
    text: str
    start: int
    end: int


@lru_cache(maxsize=256)
def _tokens(code: str) -> list[_Token]:
    """Without comments, and without a comma that only stands there because a bracket is closed on
    the next line.
    """
    found = [_Token(match[0], match.start(), match.end()) for match in _TOKEN.finditer(code)]
    found = [token for token in found if not token.text.startswith("#")]
    after = [token.text for token in found[1:]] + [""]
    return [
        token
        for token, following in zip(found, after, strict=True)
        if token.text != "," or following not in _CLOSING
    ]


def _places(pattern: list[_Token], tokens: list[_Token]) -> Iterator[tuple[int, int]]:
    """(start, end) in the code, wherever the tokens are those of the pattern."""
    wanted, texts = [token.text for token in pattern], [token.text for token in tokens]
    for at in range(len(texts) - len(wanted) + 1):
        if texts[at : at + len(wanted)] == wanted:
            yield tokens[at].start, tokens[at + len(wanted) - 1].end
