"""The commands in README.md and docs/, as the pages show them.

Theory of operation. Commands stand in ``console`` blocks: lines that begin with ``$ `` (continued
by a backslash, or as a here-document), each followed by the output that it shows, which may be left
out. What a test does with them is said by comments that readers do not see:

- ``<!-- scene: NAME -->`` near the top of a page: its blocks are run one after the other, in one
  shell (``scenes``);
- ``<!-- not run: WHY -->`` before a block: it is not; ``<!-- made by TEST -->``: that test makes it
  from what the commands print;
- ``<!-- another terminal -->`` before a block: it runs beside those that follow, until the page
  ends.

Output is compared word by word: ``...`` stands for any words up to the end of a line, alone on a
line for any lines, and a time such as ``5s`` or ``2m10s`` for any other. A command must end with 0,
unless the next one asks ``echo $?``.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"^( *)```(\w*) *$")
_COMMENT: Final = re.compile(r"^ *<!-- (scene|not run|made by|another terminal)(?::? (.+?))? -->$")
_TIME: Final = re.compile(r"^(\d+(\.\d+)?(ms|[smhd]))+$")


@dataclass(frozen=True)
class Command:
    """One command as it is typed; ``output``: the lines shown under it, none where nothing is
    shown.
    """

    text: str
    line: int
    output: tuple[str, ...] = ()


@dataclass
class Block:
    """One ``console`` block."""

    line: int
    commands: list[Command] = field(default_factory=list)
    not_run: str = ""
    beside: bool = False


@dataclass
class Page:
    """A page with its commands; ``scene`` "" where none of them is run."""

    path: Path
    scene: str = ""
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Relative to the repository."""
        return str(self.path.relative_to(ROOT))


def pages() -> list[Page]:
    """README and everything in docs/ that shows commands."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in map(read_page, paths) if page.blocks]


def read_page(path: Path) -> Page:
    """Raises ValueError for a block that no comment can be told of."""
    page = Page(path)
    notes: dict[str, str] = {}
    block: list[tuple[int, str]] | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if block is not None:
            if fence:
                page.blocks.append(_block(block, notes))
                block, notes = None, {}
            else:
                block.append((number, line))
        elif fence and fence[2] == "console":
            block = []
        elif comment := _COMMENT.match(line):
            if comment[1] == "scene":
                page.scene = comment[2]
            else:
                notes[comment[1]] = comment[2] or "yes"
        elif line.strip() and not fence:
            notes = {}
    return page


def _block(lines: list[tuple[int, str]], notes: dict[str, str]) -> Block:
    block = Block(
        lines[0][0],
        not_run=notes.get("not run", "") or notes.get("made by", ""),
        beside="another terminal" in notes,
    )
    indent = len(lines[0][1]) - len(lines[0][1].lstrip())
    waiting = [(number, line[indent:]) for number, line in lines]
    while waiting:
        number, line = waiting.pop(0)
        if not line.startswith("$ "):
            raise ValueError(f"line {number}: a console block begins with a command: {line}")
        text = line[2:]
        while waiting and text.endswith("\\"):
            text += "\n" + waiting.pop(0)[1]
        if here := re.search(r"<<'?(\w+)'?", text):
            while waiting and (text := text + "\n" + waiting.pop(0)[1]).splitlines()[-1] != here[1]:
                pass
        output = []
        while waiting and not waiting[0][1].startswith("$ "):
            output.append(waiting.pop(0)[1])
        block.commands.append(Command(text, number, tuple(output)))
    return block


def difference(shown: tuple[str, ...], real: str) -> str:
    """ "" where the real output is what is shown, else what differs first."""
    lines = [line for line in real.splitlines() if line.strip()]
    wanted = [line for line in shown if line.strip()]
    return "" if _match(wanted, lines) else f"shown:\n{chr(10).join(wanted)}\nreal:\n{real}"


def _match(shown: list[str], lines: list[str]) -> bool:
    if not shown:
        return not lines
    if shown[0].strip() == "...":
        return any(_match(shown[1:], lines[skipped:]) for skipped in range(len(lines) + 1))
    return bool(lines) and _same(shown[0], lines[0]) and _match(shown[1:], lines[1:])


def _same(shown: str, real: str) -> bool:
    wanted, found = shown.split(), real.split()
    for index, word in enumerate(wanted):
        if word == "...":
            return True
        if index >= len(found) or not (
            word == found[index] or (_TIME.match(word) and _TIME.match(found[index]))
        ):
            return False
    return len(wanted) == len(found)


def with_article(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"
