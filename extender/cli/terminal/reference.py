"""Generates docs/cli.md from the parsers: ``vreplica __reference > docs/cli.md``. Pure.

It does not use argparse's own help, which differs between Python versions.
"""

import argparse
from collections.abc import Iterator
from typing import Final

from extender.cli.terminal.exit_status import MEANINGS

_HEAD: Final = """# The command line

Generated from the commands themselves by `vreplica __reference`; a test compares.

`vreplica` is also installed as `kubectl-vreplica`, so `kubectl vreplica COMMAND` is the same.
Results go to standard output; what is told meanwhile, progress and errors go to standard error.
`-o json` and `-o yaml` have the same data under the same names. Commands that read a cluster find
it as kubectl does: `--kubeconfig` and `--context` mean the same. `--namespace` is that of the names
that a command takes: the vpod's or pod's in `explain`, the new vpods' in `plan`, the installation's
in `doctor`.
"""

_COMPLETION: Final = """## Completion

<!-- not run: tests/cli/terminal/test_completing.py runs the shells with it -->
```console
$ source <(vreplica completion bash)                  # in ~/.bashrc
$ source <(vreplica completion zsh)                   # in ~/.zshrc
$ vreplica completion fish | source                   # in ~/.config/fish/config.fish
$ vreplica completion kubectl > ~/.local/bin/kubectl_complete-vreplica
$ chmod +x ~/.local/bin/kubectl_complete-vreplica
```

The last two are for `kubectl vreplica`: kubectl's own completion asks that program, if it is in a
folder of `$PATH`.

The names of objects for `explain` and `plan` are read from the cluster, within 2 s: vpods and
adapter pods of the namespace, nodes, zones, pools. Objects of foreign kinds that pools declare
count as vpods; one has its kind (`@KIND.GROUP`) only if another object has its name.
"""


def reference(parser: argparse.ArgumentParser) -> str:
    """The whole page."""
    parts = [_HEAD, "## Options of all commands\n", *_arguments(parser), "## Exit status\n"]
    parts += [
        "| | |",
        "|---|---|",
        *(f"| {status} | {meaning} |" for status, meaning in MEANINGS.items()),
        "",
    ]
    parts.append(_COMPLETION)
    for name, help_text, command in _commands(parser):
        parts += [*_command(f"{parser.prog} {name}", help_text, command, 2)]
    return "\n".join(parts).rstrip() + "\n"


def _command(
    name: str, help_text: str, parser: argparse.ArgumentParser, level: int
) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield f"{_sentence(parser.description or help_text)}\n"
    inner = list(_commands(parser))
    if not inner:
        yield f"```\n{_usage(name, parser)}\n```\n"
        yield from _arguments(parser)
    if parser.epilog:
        yield f"{_sentence(parser.epilog)}\n"
    for child, child_help, child_parser in inner:
        yield from _command(f"{name} {child}", child_help, child_parser, level + 1)


def _usage(name: str, parser: argparse.ArgumentParser) -> str:
    words = [name, "[OPTIONS]"]
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask what it knows
        if action.option_strings and action.required:
            words.append(f"{action.option_strings[-1]} {_metavar(action)}")
        elif not action.option_strings:
            words.append(f"{_metavar(action)}{'...' if action.nargs in {'+', '*'} else ''}")
    return " ".join(words)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [_row(action) for action in parser._actions if _is_listed(action)]  # noqa: SLF001 - as above
    if rows:
        yield "| | |\n|---|---|"
        yield from rows
        yield ""


def _is_listed(action: argparse.Action) -> bool:
    hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
    return not hidden and action.dest != "help"


def _row(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    names = (
        ", ".join(f"`{name}{value}`" for name in action.option_strings) or f"`{_metavar(action)}`"
    )
    help_text = (action.help or "").replace("%(default)s", str(action.default))
    if action.choices and not isinstance(action.metavar, str):
        help_text = " ".join(
            filter(None, (help_text, f"[{', '.join(str(choice) for choice in action.choices)}]"))
        )
    again = " (may be given again)" if isinstance(action, argparse._AppendAction) else ""  # noqa: SLF001 - as above
    return f"| {_cell(names)} | {_cell(help_text + again)} |"


def _metavar(action: argparse.Action) -> str:
    return (
        action.metavar if isinstance(action.metavar, str) else action.dest.upper().replace("-", "_")
    )


def _commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - as above
            for name, command in action.choices.items():
                yield name, helps.get(name, ""), command


def _sentence(text: str) -> str:
    """Make a sentence of a help text."""
    text = " ".join(text.split())
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
