"""helm, built from its Go module: ``python -m tests.manifests.tool``.

As the control plane (``tests.e2e.build``): ``helm/go.mod`` names it by a ``tool`` directive,
without a line of Go of ours, and what is built goes to a folder whose name is a hash of what
decides it. A module and a folder of its own, so that a new helm builds no control plane anew.
``VREPLICA_HELM=FILE`` names a ready one. kustomize needs none: kubectl has it.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.e2e.build import BUILD_TIMEOUT_S, cache_dir, ready_binaries

MODULE: Final = Path(__file__).parent / "helm"
VARIABLE: Final = "VREPLICA_HELM"
VERSION: Final = "v4.3.1"
"""As in go.mod; a program that ``go build`` makes does not know its own."""
_FLAGS: Final = f"-s -w -X helm.sh/helm/v4/internal/version.version={VERSION}"


class ToolUnavailable(Exception):
    """There is no helm here; the text is the reason that tests are skipped with."""


def folder() -> Path:
    """Where the helm of this go.mod is, or would be."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} trimpath {_FLAGS}".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return cache_dir().with_name("helm") / digest.hexdigest()[:16]


@cache
def helm() -> Path:
    """The program. Raises ToolUnavailable."""
    if named := os.environ.get(VARIABLE, ""):
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"{VARIABLE}={named} is no program")
        return Path(named).resolve()
    program = folder() / "helm"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise ToolUnavailable(f"no helm: Go is not installed and {VARIABLE} is not set")
    raise ToolUnavailable("no helm: not built yet, run `python -m tests.manifests.tool`")


def kubectl() -> Path:
    """kubectl of the control plane, which has kustomize. Raises ControlPlaneUnavailable."""
    return ready_binaries().program("kubectl")


def build() -> Path:
    """helm, built unless it is there. Raises ToolUnavailable, CalledProcessError."""
    try:
        return helm()
    except ToolUnavailable:
        if shutil.which("go") is None:
            raise
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        subprocess.run(
            ["go", "build", "-trimpath", f"-ldflags={_FLAGS}", "-o", f"{scratch}/", "tool"],
            cwd=MODULE,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
        scratch.chmod(0o755)
        if not target.is_dir():
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return helm()


def main() -> int:
    """Builds helm; 0 also where there is nothing to build with."""
    try:
        sys.stdout.write(f"helm: {build()}\n")
    except ToolUnavailable as error:
        sys.stdout.write(f"{error}; the tests of the chart's rendering will be skipped\n")
    except subprocess.SubprocessError as error:
        sys.stdout.write(f"helm: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
