"""``python -m tests.manifests``: write what is generated from the chart; ``--check``: only say what
would change.

Ends with 0, with 1 where ``--check`` found a difference (or helm failed), with 2 where there is no
helm.
"""

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.manifests.chart import RenderFailed, render
from tests.manifests.generate import CHART_FOLDER, MANIFESTS, generated
from tests.manifests.tool import ToolUnavailable, build


def differences(wanted: Mapping[str, str], folder: Path = MANIFESTS) -> list[str]:
    """A unified diff for each file that is not as wanted, and a line for each that is no longer
    wanted.
    """
    found = []
    for name, text in wanted.items():
        path = folder / name
        present = path.read_text() if path.exists() else ""
        if present != text:
            lines = difflib.unified_diff(
                present.splitlines(), text.splitlines(), name, f"{name} (generated)", lineterm=""
            )
            found.append("\n".join(lines))
    return found + [
        f"{path.relative_to(folder)} is not generated any more"
        for path in _left_over(wanted, folder)
    ]


def _left_over(wanted: Mapping[str, str], folder: Path) -> list[Path]:
    # Not all that is in these two is generated.
    mixed = {folder / "kube-scheduler", folder / CHART_FOLDER}
    folders = {(folder / name).parent for name in wanted} - mixed
    return sorted(
        path
        for place in folders
        for path in place.glob("*.yaml")
        if str(path.relative_to(folder)) not in wanted
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.manifests", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, show what differs")
    options = parser.parse_args()
    try:
        build()
        wanted = generated(render)
    except ToolUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except RenderFailed as error:
        sys.stderr.write(f"helm: {error}\n")
        return 1
    found = differences(wanted)
    if options.check:
        sys.stdout.write("".join(f"{text}\n" for text in found))
        return int(bool(found))
    for name, text in wanted.items():
        path = MANIFESTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in _left_over(wanted, MANIFESTS):
        path.unlink()
    sys.stdout.write(f"{len(wanted)} files, {len(found)} of them new or changed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
