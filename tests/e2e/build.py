"""Builds the control plane that the end-to-end suite runs on: ``python -m tests.e2e.build``.

Theory of operation. Three Go modules without a line of Go of ours (``controlplane/``, ``controlplane/kwok``,
``controlplane/legacy``) name their programs by ``tool`` directives; ``go build ... tool`` compiles them. The result goes to
``${XDG_CACHE_HOME:-~/.cache}/vreplica-scheduler/controlplane/KEY/``, where KEY is a hash of every module's go.mod and
go.sum, of the flags and of the platform: equal inputs are never built twice, changed ones never served stale. A build
happens in a sibling folder that is renamed at the end, so that the folder KEY is complete or absent, also when two
builds race or one is killed.

``VREPLICA_CONTROLPLANE_BIN=DIR`` points at ready programs instead. Where there is neither that nor Go, the command says
so and ends with 0, and the tests skip with the same words.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES_DIR: Final = Path(__file__).parent / "controlplane"
ONLY_CONTROL_PLANE: Final = "--only-control-plane"
BIN_VARIABLE: Final = "VREPLICA_CONTROLPLANE_BIN"
BUILD_TIMEOUT_S: Final = 3600.0
"""Of one module, seconds; a cold build of the largest takes some eight minutes on two cores."""

_VERSION: Final = "-X k8s.io/component-base/version.gitVersion="


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module: its folder below ``controlplane/``, the linker's flags, the programs and where they go."""

    folder: str
    ldflags: str
    programs: tuple[str, ...]
    into: str = ""


MODULES: Final = (
    Module(
        "",
        f"-s -w {_VERSION}v1.36.3",
        ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    ),
    Module("kwok", "-s -w", ("kwok",)),
    Module("legacy", f"-s -w {_VERSION}v1.22.17", ("kube-scheduler",), into="legacy"),
)

_RENAMED: Final = {"server": "etcd"}
"""go build names a program by its package's last element; etcd's is ``server``."""


class ControlPlaneUnavailable(Exception):
    """There is no control plane to test on; the text is the reason that tests are skipped with."""


class BuildFailed(Exception):
    """``go build`` failed or a program is missing; the text says which module and how."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder of programs. ``legacy_scheduler`` may be missing in a folder that was not built here."""

    folder: Path

    def program(self, name: str) -> Path:
        """Path of a program. Raises BuildFailed when the folder lacks it."""
        for candidate in (name, *(old for old, new in _RENAMED.items() if new == name)):
            path = self.folder / candidate
            if path.is_file() and os.access(path, os.X_OK):
                return path
        raise BuildFailed(f"{self.folder} has no program {name}")

    @property
    def legacy_scheduler(self) -> Path:
        """kube-scheduler 1.22, the last that reads a Policy file. Raises BuildFailed."""
        return self.program("legacy/kube-scheduler")


def cache_dir() -> Path:
    """Folder that holds one subfolder a KEY."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vreplica-scheduler" / "controlplane"


def build_key() -> str:
    """Hash of all that decides what comes out, 16 hex digits."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} trimpath {MODULES}".encode())
    for module in MODULES:
        for name in ("go.mod", "go.sum"):
            digest.update((MODULES_DIR / module.folder / name).read_bytes())
    return digest.hexdigest()[:16]


def ready_binaries() -> Binaries:
    """The programs to run, without building any.

    Raises ControlPlaneUnavailable (skip) where there are none, BuildFailed where the variable names a folder that lacks
    one: who sets it wants the tests to run.
    """
    named = os.environ.get(BIN_VARIABLE, "")
    if named:
        return _checked(Binaries(Path(named).expanduser().resolve()))
    folder = cache_dir() / build_key()
    if folder.is_dir():
        return _checked(Binaries(folder))
    if shutil.which("go") is None:
        raise ControlPlaneUnavailable(
            f"no real control plane: Go is not installed and {BIN_VARIABLE} is not set"
        )
    raise ControlPlaneUnavailable("no real control plane: not built yet, run `python -m tests.e2e.build`")


def build(say: Callable[[str], None]) -> Binaries:
    """The programs, built unless they are there. ``say`` gets a line for each step.

    Raises ControlPlaneUnavailable without Go, BuildFailed with the compiler's words.
    """
    try:
        ready = ready_binaries()
    except ControlPlaneUnavailable:
        if shutil.which("go") is None:
            raise
    else:
        say(f"control plane: ready in {ready.folder}")
        return ready
    target = cache_dir() / build_key()
    target.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        for module in MODULES:
            _build_module(module, scratch, say)
        scratch.chmod(0o755)
        _publish(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"control plane: built into {target} in {time.monotonic() - started:.0f} s")
    return _checked(Binaries(target))


def _checked(binaries: Binaries) -> Binaries:
    for module in MODULES[:2]:
        for program in module.programs:
            if program != "kubectl":  # a convenience for people; no test runs it
                binaries.program(program)
    return binaries


def _build_module(module: Module, scratch: Path, say: Callable[[str], None]) -> None:
    out = scratch / module.into
    out.mkdir(exist_ok=True)
    command = ["go", "build", "-trimpath", f"-ldflags={module.ldflags}", "-o", f"{out}/", "tool"]
    say(f"control plane: building {', '.join(module.programs)} (minutes when cold, seconds when warm)")
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=MODULES_DIR / module.folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        where = f"controlplane/{module.folder}".rstrip("/")
        raise BuildFailed(f"go build in {where} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    for old, new in _RENAMED.items():
        if (out / old).exists():
            (out / old).rename(out / new)
    for program in module.programs:
        if not (out / program).exists():
            raise BuildFailed(f"go build in controlplane/{module.folder} made no {program}")
    say(f"control plane: {', '.join(module.programs)} took {time.monotonic() - started:.0f} s")


def _publish(scratch: Path, target: Path) -> None:
    try:
        scratch.rename(target)
    except OSError:
        # Another build of the same key was first; its result is as good as ours.
        if not target.is_dir():
            raise


def main() -> int:
    """Builds what is missing; 0 also where there is nothing to build with."""

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    # Not above: it takes what is here.
    from tests.e2e.go_tool import PROMTOOL  # noqa: PLC0415

    try:
        build(say)
        if ONLY_CONTROL_PLANE not in sys.argv[1:]:
            PROMTOOL.build(say)
    except ControlPlaneUnavailable as error:
        say(f"{error}; the end-to-end tests on it will be skipped")
    except (BuildFailed, subprocess.TimeoutExpired) as error:
        say(f"control plane: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
