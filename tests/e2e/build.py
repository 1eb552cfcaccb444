"""Builds the programs that the end-to-end suite runs on: ``python -m tests.e2e.build
[--only-control-plane] [MODULE ...]``.

Theory of operation. Each folder below ``controlplane/`` is a Go module without a line of Go of
ours: ``1.34`` to the newest version of Kubernetes, ``kwok`` (plays the kubelets), ``legacy`` (the
last kube-scheduler that reads a Policy file), ``karpenter`` (a node autoscaler). Its go.mod names
the programs by ``tool`` directives. What ``go build`` makes of a module goes to
``${XDG_CACHE_HOME:-~/.cache}/vreplica-scheduler/controlplane/MODULE-KEY/``. KEY is a hash of
go.mod, go.sum, the flags and the platform: equal inputs are never built twice, and changed ones are
never served stale. A build happens in a sibling folder that is renamed at the end, so that the
folder is complete or absent, also when two builds race or one is killed.

``KUBERNETES=1.36`` chooses the version, the newest by default. ``VREPLICA_CONTROLPLANE_BIN=DIR``
points at ready programs instead. Where there is neither that nor Go, the command says so and ends
with 0, and the tests skip with the same words.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES_DIR: Final = Path(__file__).parent / "controlplane"
ONLY_CONTROL_PLANE: Final = "--only-control-plane"
BIN_VARIABLE: Final = "VREPLICA_CONTROLPLANE_BIN"
VERSION_VARIABLE: Final = "KUBERNETES"
BUILD_TIMEOUT_S: Final = 3600.0
"""Of one module, seconds; a cold build of the largest takes some fifteen minutes on two cores."""

_KUBERNETES_VERSION: Final = re.compile(r"^\s*k8s\.io/kubernetes (v\S+)", re.MULTILINE)
_MAJOR_SUFFIX: Final = re.compile(r"/v\d+$")


class ControlPlaneUnavailable(Exception):
    """There is no control plane to test on; the text is the reason that tests are skipped with."""


class BuildFailed(Exception):
    """``go build`` failed or a program is missing; the text says which module and how."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module: its folder below ``controlplane/`` and the Go package of each program."""

    folder: str
    packages: tuple[tuple[str, str], ...]
    name: str = ""
    """What the cache calls it, where two share a folder."""
    files: tuple[tuple[str, str], ...] = ()
    """What is copied beside the programs: a Go module and a file's path in it."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names that ``Binaries.program`` takes."""
        return tuple(program for program, _ in self.packages)

    @property
    def kubernetes(self) -> str:
        """The Kubernetes that its go.mod requires, as v1.36.3; empty when it requires none."""
        found = _KUBERNETES_VERSION.search((MODULES_DIR / self.folder / "go.mod").read_text())
        return found[1] if found else ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Of ``go build``. A Kubernetes program tells clients the version that the linker
        gives it.
        """
        version = self.kubernetes
        told = f" -X k8s.io/component-base/version.gitVersion={version}" if version else ""
        return ("-trimpath", f"-ldflags=-s -w{told}")

    def key(self) -> str:
        """Hash of all that decides what comes out, 16 hex digits."""
        inputs = (
            f"{platform.system()} {platform.machine()} {self.flags} {self.packages} {self.files}"
        )
        digest = hashlib.sha256(inputs.encode())
        for name in ("go.mod", "go.sum"):
            digest.update((MODULES_DIR / self.folder / name).read_bytes())
        return digest.hexdigest()[:16]

    def target(self) -> Path:
        """The folder that its programs are in, or will be."""
        return cache_dir() / f"{self.name or self.folder}-{self.key()}"


_COMMANDS: Final = "k8s.io/kubernetes/cmd"
_KUBERNETES: Final = (
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", f"{_COMMANDS}/kube-apiserver"),
    ("kube-controller-manager", f"{_COMMANDS}/kube-controller-manager"),
    ("kube-scheduler", f"{_COMMANDS}/kube-scheduler"),
    ("kubectl", f"{_COMMANDS}/kubectl"),
)
VERSIONS: Final = tuple(
    sorted(
        (path.name for path in MODULES_DIR.glob("1.*")),
        key=lambda version: [int(number) for number in version.split(".")],
    )
)
"""Minor versions of Kubernetes that have a module, oldest first."""
KWOK: Final = Module("kwok", (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),))
LEGACY: Final = Module("legacy", (("legacy-kube-scheduler", f"{_COMMANDS}/kube-scheduler"),))
KUBELET: Final = Module(VERSIONS[-1], (("kubelet", f"{_COMMANDS}/kubelet"),), name="kubelet")
"""Of the newest version, for real nodes. A module by its name: the suite without real nodes does
not wait for it.
"""
_KARPENTER: Final = "sigs.k8s.io/karpenter"
KARPENTER: Final = Module(
    "karpenter",
    (("karpenter", f"{_KARPENTER}/kwok"),),
    files=(
        (_KARPENTER, "pkg/apis/crds/karpenter.sh_nodeclaims.yaml"),
        (_KARPENTER, "pkg/apis/crds/karpenter.sh_nodepools.yaml"),
        (_KARPENTER, "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml"),
    ),
)
"""Karpenter with the provider that makes kwok's nodes. 1.12 is the last that Go 1.26.8 builds."""
EXTRA: Final = {module.name or module.folder: module for module in (KUBELET, KARPENTER)}
"""What is built when it is named, by name."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Folders of programs; a program is in one of them."""

    folders: tuple[Path, ...]

    def program(self, name: str) -> Path:
        """Path of a program. Raises BuildFailed when the folders lack it."""
        for folder in self.folders:
            path = folder / name
            if path.is_file() and os.access(path, os.X_OK):
                return path
        raise BuildFailed(f"no program {name} in {', '.join(map(str, self.folders))}")


def kubernetes_module() -> Module:
    """The module of the version that ``KUBERNETES`` names, else of the newest. Raises BuildFailed
    for an unknown one.
    """
    version = os.environ.get(VERSION_VARIABLE, "") or VERSIONS[-1]
    if version not in VERSIONS:
        raise BuildFailed(
            f"{VERSION_VARIABLE}={version}: there are modules for {', '.join(VERSIONS)}"
        )
    return Module(version, _KUBERNETES)


def control_plane_modules() -> tuple[Module, ...]:
    """What a control plane needs, and kube-scheduler 1.22 beside it."""
    return (kubernetes_module(), KWOK, LEGACY)


def cache_dir() -> Path:
    """Folder that holds one subfolder for each module and KEY."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vreplica-scheduler" / "controlplane"


def ready_binaries(*extra: Module) -> Binaries:
    """The programs of a control plane and of ``extra``, without building any.

    Raises ControlPlaneUnavailable (skip) where there are none, BuildFailed where
    ``VREPLICA_CONTROLPLANE_BIN`` names a folder that lacks one: who sets it wants the tests to run.
    """
    modules = (*control_plane_modules(), *extra)
    if named := os.environ.get(BIN_VARIABLE, ""):
        binaries = Binaries((Path(named).expanduser().resolve(),))
        # Without kubectl and the old kube-scheduler, only the tests that need them fail or skip.
        optional = {"kubectl", *LEGACY.programs}
        for program in (program for module in modules for program in module.programs):
            if program not in optional:
                binaries.program(program)
        return binaries
    missing = [module for module in modules if not module.target().is_dir()]
    if not missing:
        return Binaries(tuple(module.target() for module in modules))
    if shutil.which("go") is None:
        raise ControlPlaneUnavailable(
            f"no real control plane: Go is not installed and {BIN_VARIABLE} is not set"
        )
    names = " ".join(module.name or module.folder for module in missing)
    raise ControlPlaneUnavailable(f"no real control plane: not built yet ({names}), run `make e2e`")


def build(say: Callable[[str], None], extra: Iterable[Module] = ()) -> Binaries:
    """The programs, built unless they are there. ``say`` gets a line for each step.

    Raises ControlPlaneUnavailable without Go, BuildFailed with the compiler's words.
    """
    extra = tuple(extra)
    try:
        ready = ready_binaries(*extra)
    except ControlPlaneUnavailable:
        if shutil.which("go") is None:
            raise
    else:
        say(f"control plane: ready in {', '.join(map(str, ready.folders))}")
        return ready
    for module in (*control_plane_modules(), *extra):
        if not module.target().is_dir():
            _build_module(module, say)
    return ready_binaries(*extra)


def _build_module(module: Module, say: Callable[[str], None]) -> None:
    target = module.target()
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    version = f" {module.kubernetes}" if module.kubernetes else ""
    what = f"{', '.join(module.programs)}{version}"
    say(f"control plane: building {what} (minutes when cold, seconds when warm)")
    started = time.monotonic()
    try:
        _go_build(module, scratch)
        for dependency, path in module.files:
            source = _go(module, "list", "-m", "-f", "{{.Dir}}", dependency).strip()
            shutil.copy(Path(source) / path, scratch)
        scratch.chmod(0o755)
        _publish(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"control plane: {what} took {time.monotonic() - started:.0f} s")


def _go_build(module: Module, out: Path) -> None:
    _go(
        module,
        "build",
        *module.flags,
        "-o",
        f"{out}/",
        *(package for _, package in module.packages),
    )
    for program, package in module.packages:
        # go build names a program by its package's last element: etcd's is "server".
        made = out / _MAJOR_SUFFIX.sub("", package).rsplit("/", 1)[1]
        if not made.is_file():
            raise BuildFailed(f"go build in controlplane/{module.folder} made no {made.name}")
        made.rename(out / program)


def _go(module: Module, command: str, *arguments: str) -> str:
    """Output of ``go COMMAND`` in the module's folder. Raises BuildFailed with its last words."""
    done = subprocess.run(
        ["go", command, *arguments],
        cwd=MODULES_DIR / module.folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        where = f"controlplane/{module.folder}"
        raise BuildFailed(
            f"go {command} in {where} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        )
    return done.stdout


def _publish(scratch: Path, target: Path) -> None:
    try:
        scratch.rename(target)
    except OSError:
        # Another build of the same key was first; its result is as good as ours.
        if not target.is_dir():
            raise


def main(arguments: list[str]) -> int:
    """Builds what is missing; 0 also where there is nothing to build with."""

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    # Not above: it takes what is here.
    from tests.e2e.go_tool import (  # noqa: PLC0415
        ADAPTER_WORKER,
        CONSUMERGROUP_CONTROLLER,
        PROMTOOL,
    )

    try:
        extra = [EXTRA[name] for name in arguments if name != ONLY_CONTROL_PLANE]
        if ONLY_CONTROL_PLANE not in arguments:
            extra.append(KARPENTER)
        build(say, extra)
        CONSUMERGROUP_CONTROLLER.build(say)
        ADAPTER_WORKER.build(say)
        if ONLY_CONTROL_PLANE not in arguments:
            PROMTOOL.build(say)
    except KeyError as error:
        say(f"control plane: no module {error}; there are {', '.join(EXTRA)}")
        return 2
    except ControlPlaneUnavailable as error:
        say(f"{error}; the end-to-end tests on it will be skipped")
    except (BuildFailed, subprocess.TimeoutExpired) as error:
        say(f"control plane: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
