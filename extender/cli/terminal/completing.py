"""Finds the words that complete a command line, from the parsers themselves. Pure.

So completion always matches the options. A shell's script (``completion``) and kubectl call the
hidden command ``__complete WORD...``. Its last word, which may be empty, is the one being typed.
The answer has one candidate a line, with a tab and its help. The last line is ``:0`` if file names
are wanted, else ``:4``. This is the protocol of Cobra, which kubectl uses with its plug-ins.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

FILES: Final = ":0"
NO_FILES: Final = ":4"
HELP_CHARS_MAX: Final = 100

Known = Mapping[tuple[str, str], Callable[[Mapping[str, str]], Sequence[str]]]
"""(command, ``dest`` of its option) -> the values that the parser does not list. The function gets
the options that stand before the cursor: ``dest`` -> value.
"""


class Candidates(NamedTuple):
    """``words``: each with its help, "" for none. ``files``: whether file names may stand there
    too.
    """

    words: list[tuple[str, str]]
    files: bool = False

    def lines(self) -> list[str]:
        """The lines to print."""
        lines = [f"{word}\t{help_text}" if help_text else word for word, help_text in self.words]
        return [*lines, FILES if self.files else NO_FILES]


def complete(parser: argparse.ArgumentParser, words: Sequence[str], known: Known) -> Candidates:
    """Candidates for the last of ``words``."""
    *before, last = _joined(words) or [""]
    line = _Line(parser, known)
    for word in before:
        line.read(word)
    return line.candidates(last)


def _joined(words: Sequence[str]) -> list[str]:
    """Join the three words into which Bash breaks ``--option=value``."""
    joined: list[str] = []
    for word in words:
        if word == "=" and joined and joined[-1].startswith("--"):
            joined[-1] += "="
        elif joined and joined[-1].startswith("--") and joined[-1].endswith("="):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


class _Line:
    """The state of the parsers after the words before the cursor."""

    def __init__(self, parser: argparse.ArgumentParser, known: Known) -> None:
        self._parser = parser
        self._known = known
        self._command = ""
        self._value_of: argparse.Action | None = None
        """The option whose value comes next."""
        self._given: dict[str, str] = {}
        """``dest`` of each option that was given -> its last value, "" for none."""
        self._positionals = 0

    def read(self, word: str) -> None:
        """Process a complete word."""
        if self._value_of is not None:
            self._given[self._value_of.dest] = word
            self._value_of = None
        elif word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            action = self._option(name)
            if action is not None:
                self._given[action.dest] = value
                self._value_of = action if action.nargs != 0 and not equals else None
        elif (commands := self._commands()) is not None and word in (commands.choices or {}):
            self._parser, self._command = commands.choices[word], word
            self._positionals, self._given = 0, {}
        else:
            self._positionals += 1

    def candidates(self, last: str) -> Candidates:
        """The words that may replace ``last``."""
        if self._value_of is not None:
            return self._values(self._value_of, last, "")
        if last.startswith("--") and "=" in last:
            name, _, begun = last.partition("=")
            action = self._option(name)
            return self._values(action, begun, f"{name}=") if action is not None else Candidates([])
        if last.startswith("-"):
            return Candidates(self._options(last))
        if (commands := self._commands()) is not None:
            found = [(choice.dest, _help_of(choice)) for choice in commands._choices_actions]  # noqa: SLF001 - argparse tells the help of commands nowhere else
            return Candidates([word for word in found if word[0].startswith(last)])
        positional = self._positional()
        return self._values(positional, last, "") if positional is not None else Candidates([])

    def _values(self, action: argparse.Action, begun: str, before: str) -> Candidates:
        words = [str(choice) for choice in action.choices or ()]
        if (more := self._known.get((self._command, action.dest))) is not None:
            words += more(self._given)
        found = [(before + word, "") for word in words if word.startswith(begun)]
        return Candidates(found, files=not words and str(action.metavar) == "FILE")

    def _options(self, begun: str) -> list[tuple[str, str]]:
        """Options in their long form, except those that were given and may not be repeated."""
        found = []
        for action in self._actions():
            repeats = isinstance(action, argparse._AppendAction)  # noqa: SLF001 - there is no public name
            if not action.option_strings or action.help == argparse.SUPPRESS:
                continue
            if action.dest in self._given and not repeats:
                continue
            long = [
                name for name in action.option_strings if name.startswith("--")
            ] or action.option_strings
            found += [(name, _help_of(action)) for name in long if name.startswith(begun)]
        return sorted(found)

    def _option(self, name: str) -> argparse.Action | None:
        return next((action for action in self._actions() if name in action.option_strings), None)

    def _positional(self) -> argparse.Action | None:
        """The next positional argument. The last one may be repeated."""
        positionals = [action for action in self._actions() if not action.option_strings]
        if self._positionals < len(positionals):
            return positionals[self._positionals]
        last = positionals[-1] if positionals else None
        return last if last is not None and last.nargs in {"+", "*"} else None

    def _commands(self) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
        return next(
            (one for one in self._actions() if isinstance(one, argparse._SubParsersAction)),  # noqa: SLF001 - as above
            None,
        )

    def _actions(self) -> list[argparse.Action]:
        return self._parser._actions  # noqa: SLF001 - argparse has no other way to ask what it knows


def _help_of(action: argparse.Action) -> str:
    """The help in one line, with its default filled in."""
    help_text = " ".join((action.help or "").replace("%(default)s", str(action.default)).split())
    return help_text[:HELP_CHARS_MAX]
