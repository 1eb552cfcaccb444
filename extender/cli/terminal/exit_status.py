"""The exit statuses of all commands. A command's help describes its special ones."""

from collections.abc import Mapping
from typing import Final

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
"""``explain``: there is no such vpod or pod."""
DIFFERENT: Final = 3
"""``replay --check``: a decision differs."""
UNPLACED: Final = 4
"""``explain`` and ``plan`` with ``--check``: something has no place."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

MEANINGS: Final[Mapping[int, str]] = {
    OK: "It did what it was asked. SIGTERM and Ctrl-C end `serve`, `run`, `cluster`, `top` and "
    "`record` so, too.",
    ERROR: "It could not; one line on standard error says why.",
    USAGE: "The command line is wrong.",
    INTERRUPTED: "Ctrl-C, in all other commands.",
    BROKEN_PIPE: "Who read its output has stopped reading.",
}
