"""Running a page: its commands one after the other in one shell, as a reader would type them.

Theory of operation. The page becomes one bash script, so that an ``export`` or a ``cd`` holds for
what follows. It runs in a folder of its own that looks like the repository (links to what is
there), so that what the commands write is gone afterwards. Each command's output and exit status go
to files. ``PATH`` begins with the environment's programs and, for scenes with ``kubectl``, those of
the real control plane that the end-to-end tests are run on.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT, Block, Command, Page, difference

PAGE_TIMEOUT_S: Final = 150.0
PLAIN: Final = "plain"
"""Nothing but our own programs, no cluster."""
KUBECTL: Final = "kubectl"
"""Also kubectl; the page starts the embedded system itself."""
SCENES: Final = (PLAIN, KUBECTL)


@dataclass(frozen=True)
class Ran:
    """What became of a command: ``status`` None where it was not reached."""

    command: Command
    status: int | None
    output: str


def run_page(page: Page, folder: Path, programs: list[Path]) -> list[str]:
    """What is wrong with the page, nothing if it holds. ``folder``: an empty one; ``programs``:
    before the PATH.
    """
    links = [entry for entry in ROOT.iterdir() if entry.name not in {".git", "build", "dist"}]
    work, results = folder / "repository", folder / "results"
    work.mkdir()
    results.mkdir()
    for entry in links:
        (work / entry.name).symlink_to(entry)
    blocks = [block for block in page.blocks if not block.not_run]
    script = folder / "page.sh"
    script.write_text(_script(blocks, results))
    path = [str(program) for program in (Path(sys.executable).parent, *programs)]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*path, os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "120",
        "HOME": str(folder),
        "TERM": "dumb",
    }
    environment.pop("KUBECONFIG", None)
    with subprocess.Popen(
        ["bash", str(script)],
        cwd=work,
        env=environment,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    ) as shell:
        try:
            shell.wait(PAGE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end_group(shell.pid)
    return _problems(page, blocks, results)


def _end_group(leader: int) -> None:
    """The shell and what it has left behind, beside it."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, signum)
        except ProcessLookupError:
            return


def _script(blocks: list[Block], results: Path) -> str:
    lines = ["set -o pipefail"]
    for block in blocks:
        for index, command in enumerate(block.commands):
            out, status = results / f"{command.line}.out", results / f"{command.line}.status"
            # The status of the one before is what `echo $?` is asked for.
            lines.append("(exit ${before:-0})")
            if block.beside:
                lines.append(f"{{ {command.text}\n}} > {out} 2>&1 &")
                lines.append(f"echo 0 > {status}")
                continue
            lines.append(f"{{ {command.text}\n}} > {out} 2>&1")
            lines.append(f"before=$?; echo $before > {status}")
            follows = block.commands[index + 1 : index + 2]
            if not (follows and follows[0].text == "echo $?"):
                lines.append("[ $before = 0 ] || exit 1")
    return "\n".join([*lines, "kill $(jobs -p) 2>/dev/null", "wait", ""])


def _problems(page: Page, blocks: list[Block], results: Path) -> list[str]:
    found: list[str] = []
    for block in blocks:
        for command in block.commands:
            where = f"{page.name}:{command.line}: $ {command.text}"
            status, output = results / f"{command.line}.status", results / f"{command.line}.out"
            real = output.read_text(errors="replace") if output.exists() else ""
            if not status.exists():
                return [*found, f"{where}\nwas not reached, or did not end; its output:\n{real}"]
            followed = command is not block.commands[-1] and _next_asks(block, command)
            if (code := status.read_text().strip()) != "0" and not followed:
                return [*found, f"{where}\nended with {code}:\n{real}"]
            if (
                command.output
                and not block.beside
                and (differs := difference(command.output, real))
            ):
                found.append(f"{where}\n{differs}")
    return found


def _next_asks(block: Block, command: Command) -> bool:
    return block.commands[block.commands.index(command) + 1].text == "echo $?"
