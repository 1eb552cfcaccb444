"""Reads one JSON value like Go's scanner, with the same errors at the same places."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from extender.model.errors import VReplicaError

_SPACE: Final = " \t\r\n"
_ESCAPED: Final = '"\\/bfnrt'
_DEPTH_MAX: Final = 10000
"""Go's limit for nesting."""


class GoJSONError(VReplicaError):
    """The error text of Go's decoder."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    literal: str


class Pairs(list[tuple[str, Any]]):
    """An object: its members in order, including repeated keys."""


class Scanner:
    """A recursive reader that fails where Go's scanner does, with its texts."""

    def __init__(self, body: bytes) -> None:
        # One character for each byte, as Go's scanner works. Strings are decoded once complete.
        self._text = body.decode("latin-1")
        self._at = 0
        self._depth = 0

    def first_value(self) -> Any:
        """Return the first value: str, bool, None, Number, list or Pairs. Raises GoJSONError."""
        self._skip_space()
        if self._at >= len(self._text):
            raise GoJSONError("EOF")
        return self._value()

    def _peek(self) -> str:
        if self._at >= len(self._text):
            raise GoJSONError("unexpected EOF")
        return self._text[self._at]

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1

    def _bad(self, context: str) -> GoJSONError:
        return GoJSONError(f"invalid character {_quoted(self._peek())} {context}")

    def _value(self) -> Any:
        first = self._peek()
        if first == "{":
            return self._nested(self._object)
        if first == "[":
            return self._nested(self._array)
        if first == '"':
            return self._string()
        if first == "-" or first.isdigit():
            return self._number()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if first == word[0]:
                return self._literal(word, value)
        raise self._bad("looking for beginning of value")

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise GoJSONError("exceeded max depth")
        try:
            value = read()
        except RecursionError as error:
            raise GoJSONError("exceeded max depth") from error
        self._depth -= 1
        return value

    def _literal(self, word: str, value: bool | None) -> bool | None:
        for index in range(1, len(word)):
            self._at += 1
            if self._peek() != word[index]:
                raise self._bad(f"in literal {word} (expecting {_quoted(word[index])})")
        self._at += 1
        return value

    def _object(self) -> Pairs:
        members = Pairs()
        self._at += 1
        self._skip_space()
        if self._peek() == "}":
            self._at += 1
            return members
        while True:
            self._skip_space()
            if self._peek() != '"':
                raise self._bad("looking for beginning of object key string")
            key = self._string()
            self._skip_space()
            if self._peek() != ":":
                raise self._bad("after object key")
            self._at += 1
            self._skip_space()
            members.append((key, self._value()))
            self._skip_space()
            if self._peek() not in ",}":
                raise self._bad("after object key:value pair")
            self._at += 1
            if self._text[self._at - 1] == "}":
                return members

    def _array(self) -> list[Any]:
        items: list[Any] = []
        self._at += 1
        self._skip_space()
        if self._peek() == "]":
            self._at += 1
            return items
        while True:
            self._skip_space()
            items.append(self._value())
            self._skip_space()
            if self._peek() not in ",]":
                raise self._bad("after array element")
            self._at += 1
            if self._text[self._at - 1] == "]":
                return items

    def _number(self) -> Number:
        start = self._at
        if self._peek() == "-":
            self._at += 1
            if not self._peek().isdigit():
                raise self._bad("in numeric literal")
        if self._peek() == "0":
            self._at += 1
        else:
            self._digits("in numeric literal")
        if self._text[self._at : self._at + 1] == ".":
            self._at += 1
            self._digits("after decimal point in numeric literal")
        if self._text[self._at : self._at + 1] in {"e", "E"}:
            self._at += 1
            if self._peek() in "+-":
                self._at += 1
            self._digits("in exponent of numeric literal")
        return Number(self._text[start : self._at])

    def _digits(self, context: str) -> None:
        if self._peek() not in "0123456789":
            raise self._bad(context)
        while self._text[self._at : self._at + 1] in set("0123456789"):
            self._at += 1

    def _string(self) -> str:
        start = self._at
        self._at += 1
        plain = True
        while (character := self._peek()) != '"':
            if character < " ":
                raise self._bad("in string literal")
            if character == "\\":
                plain = False
                self._escape()
            self._at += 1
        raw = self._text[start + 1 : self._at].encode("latin-1").decode("utf-8", "replace")
        self._at += 1
        return raw if plain else _unescape(raw)

    def _escape(self) -> None:
        self._at += 1
        if self._peek() == "u":
            for _ in range(4):
                self._at += 1
                if self._peek() not in "0123456789abcdefABCDEF":
                    raise self._bad("in \\u hexadecimal character escape")
        elif self._peek() not in _ESCAPED:
            raise self._bad("in string escape code")


def _quoted(character: str) -> str:
    escapes = {"'": r"\'", "\b": r"\b", "\f": r"\f", "\v": r"\v", "\a": r"\a"}
    if character in escapes:
        return f"'{escapes[character]}'"
    return repr(character)


def _unescape(raw: str) -> str:
    text: str = json.loads(f'"{raw}"')
    # Replace lone surrogates by U+FFFD.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
