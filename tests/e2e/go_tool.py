"""Go programs that single tests need, beside the control plane: a module each, built once and
cached as ``build`` does.

``promtool/go.mod`` names Prometheus' promtool by a ``tool`` directive. ``clients/go`` is a module
of ours, and its program that of its example. Each goes to
``${XDG_CACHE_HOME:-~/.cache}/vreplica-scheduler/tools/KEY/``, where KEY is a hash of go.mod,
go.sum, our own sources and the platform. A build happens in a sibling folder that is renamed at the
end. ``python -m tests.e2e.build`` builds them too; without Go, and before that, tests skip with the
reason. A variable (``VREPLICA_PROMTOOL=FILE``) points at a ready program instead.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.build import BUILD_TIMEOUT_S, BuildFailed, ControlPlaneUnavailable, cache_dir


@dataclass(frozen=True, slots=True)
class GoTool:
    """A module in ``folder`` of the repository that makes ``program``."""

    folder: str
    program: str
    variable: str
    tags: str = ""
    """Go's build tags."""
    package: str = "tool"
    """What is built; ``tool``: what go.mod names by a ``tool`` directive."""

    @property
    def module(self) -> Path:
        """The folder of go.mod."""
        return Path(__file__).parents[2] / self.folder

    def go(self, *arguments: str) -> tuple[int, str]:
        """Run a command of Go in the module, without any build; its exit status and output."""
        done = subprocess.run(
            ["go", *arguments],
            cwd=self.module,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT_S,
        )
        return done.returncode, done.stdout

    def ready(self) -> Path:
        """The program. Raises ControlPlaneUnavailable, whose text is the reason to skip with."""
        if named := os.environ.get(self.variable, ""):
            return Path(named).expanduser().resolve()
        path = self._target() / self.program
        if path.is_file():
            return path
        if shutil.which("go") is None:
            raise ControlPlaneUnavailable(
                f"no {self.program}: Go is not installed and {self.variable} is not set"
            )
        raise ControlPlaneUnavailable(
            f"no {self.program}: not built yet, run `python -m tests.e2e.build`"
        )

    def build(self, say: Callable[[str], None]) -> Path:
        """The program, built unless it is there. Raises ControlPlaneUnavailable without Go,
        BuildFailed.
        """
        try:
            return self.ready()
        except ControlPlaneUnavailable:
            if shutil.which("go") is None:
                raise
        target = self._target()
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        try:
            say(f"{self.program}: building (minutes when cold)")
            self._compile(scratch)
            scratch.chmod(0o755)
            try:
                scratch.rename(target)
            except OSError:
                # Another build of the same key was first; its result is as good as ours.
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        say(f"{self.program}: built into {target}")
        return self.ready()

    def _compile(self, out: Path) -> None:
        options = ("-trimpath", f"-tags={self.tags}", "-ldflags=-s -w", "-o", f"{out}/")
        status, output = self.go("build", *options, self.package)
        if status != 0:
            raise BuildFailed(f"go build in {self.folder} ended with {status}:\n{output[-4000:]}")

    def _target(self) -> Path:
        digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {self}".encode())
        sources = () if self.package == "tool" else sorted(self.module.rglob("*.go"))
        for file in (self.module / "go.mod", self.module / "go.sum", *sources):
            digest.update(file.read_bytes() if file.exists() else b"")
        return cache_dir().parent / "tools" / digest.hexdigest()[:16]


PROMTOOL: Final = GoTool(
    "tests/e2e/promtool", "promtool", "VREPLICA_PROMTOOL", tags="remove_all_sd"
)
"""Without the clients of two dozen clouds, which only the discovery of targets needs."""
CONSUMERGROUP_CONTROLLER: Final = GoTool(
    "clients/go",
    "consumergroup",
    "VREPLICA_CONSUMERGROUP_CONTROLLER",
    package="./examples/consumergroup",
)
"""The controller that shows the Go client. It needs no module but ours."""
ADAPTER_WORKER: Final = GoTool(
    "clients/go", "worker", "VREPLICA_ADAPTER_WORKER", package="./examples/worker"
)
"""An adapter that is written with the Go library."""
