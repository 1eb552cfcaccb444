"""Runs the steps of a Containerfile without an engine: the same commands, in folders of their own,
on this machine's Python.

Theory of operation. There is no engine where the tests run, but what a stage does is COPY and RUN,
and those can be done anywhere: ``Build`` reads the file, keeps an empty root folder a stage, copies
what COPY names, and runs each RUN with ``/bin/sh`` in the working folder, the absolute paths below
``MOVED`` moved into that root. What an engine adds (the base image, layers, labels, the user) is
not seen: the compiler is this machine's. An instruction that is not known is an error.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MOVED: Final = ("/opt", "/src")
"""Absolute paths that the file's commands write to."""
RUN_TIMEOUT_S: Final = 600.0
_ONLY_TOLD: Final = frozenset({"FROM", "LABEL", "ENTRYPOINT"})


class StepFailed(Exception):
    """A step that did not end well; the text is the step and the end of what it said."""


@dataclass(slots=True)
class Stage:
    """What a stage has come to: its root folder, its working folder in it, and what later
    instructions see.
    """

    root: Path
    folder: str = "/"
    args: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    user: str = ""
    told: list[tuple[str, str]] = field(default_factory=list)
    """FROM, LABEL and ENTRYPOINT, as they stand."""

    def path(self, inside: str) -> Path:
        """Where a path of the stage is on this machine."""
        return self.root / (inside if inside.startswith("/") else f"{self.folder}/{inside}").lstrip(
            "/"
        )


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Keyword and the rest, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            keyword, _, rest = line.strip().partition(" ")
            yield keyword, rest.strip()


class Build:
    """One build of ``file`` from ``context`` in ``directory``; ``python``: what the base image
    would have.
    """

    def __init__(
        self, file: Path, context: Path, directory: Path, python: Path, args: Mapping[str, str]
    ) -> None:
        self._context = context
        self._directory = directory
        self._args = dict(args)
        self.stages: dict[str, Stage] = {}
        """By name, the last one as ""."""
        programs = directory / "bin"
        programs.mkdir(parents=True)
        (programs / "python").symlink_to(python)
        self._path = f"{programs}:/usr/bin:/bin"
        self._stage = Stage(directory / "none")
        for keyword, rest in instructions(file.read_text()):
            self._step(keyword, rest)
        self.stages[""] = self._stage

    def _step(self, keyword: str, rest: str) -> None:
        stage = self._stage
        if keyword == "FROM":
            name = rest.partition(" AS ")[2]
            stage = self._stage = self.stages[name] = Stage(
                self._directory / f"root-{name or 'last'}"
            )
            self._begin(stage)
        if keyword in _ONLY_TOLD:
            stage.told.append((keyword, rest))
        elif keyword == "ARG":
            name, _, default = rest.partition("=")
            stage.args[name] = self._args.get(name, default.strip('"'))
        elif keyword == "ENV":
            stage.env |= dict(word.split("=", 1) for word in shlex.split(rest))
        elif keyword == "USER":
            stage.user = rest
        elif keyword == "WORKDIR":
            stage.folder = rest
            stage.path(".").mkdir(parents=True, exist_ok=True)
        elif keyword == "COPY":
            self._copy(*shlex.split(rest))
        elif keyword == "RUN":
            self._run(rest)
        else:
            raise StepFailed(f"{keyword}: not known here")

    def _begin(self, stage: Stage) -> None:
        stage.root.mkdir()

    def _copy(self, *words: str) -> None:
        source = self._context
        left_out: Callable[[Any, list[str]], set[str]] | None = shutil.ignore_patterns(
            "__pycache__"
        )
        # Of the context, as .dockerignore has it; a stage is copied as it is.
        if words[0].startswith("--from="):
            source = self.stages[words[0].partition("=")[2]].root
            words, left_out = words[1:], None
        *names, target = words
        for name in names:
            found, where = source / name.lstrip("/"), self._stage.path(target)
            if found.is_dir():
                shutil.copytree(found, where, symlinks=True, ignore=left_out)
            else:
                place = where / found.name if target.endswith("/") else where
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, place)

    def _run(self, command: str) -> None:
        stage = self._stage
        for prefix in MOVED:
            command = re.sub(
                rf"(?<![\w./-]){prefix}(?=/)", str(stage.root / prefix.lstrip("/")), command
            )
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", command],
            cwd=stage.path("."),
            env={
                "PATH": self._path,
                "HOME": str(self._directory),
                **_network(),
                **stage.args,
                **stage.env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise StepFailed(f"RUN {command}\n{done.stdout[-4000:]}")


def _network() -> dict[str, str]:
    """How this machine reaches packages: whatever its pip is told by the environment."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_CERT", "HTTP", "http", "NO_PROXY", "no_proxy"))
    }
