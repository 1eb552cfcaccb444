"""The core's hot modules compiled to C extensions by mypyc: the same source, about twice as fast,
for whoever has a C compiler.

    VREPLICA_COMPILE=1 pip wheel .      a wheel for this platform; without it nothing is compiled,
                                        and the wheel is pure
    python hatch_build.py DIR           compile the packages in DIR, in place (``make compiled``
                                        copies them there first)

Theory of operation. What is compiled is a choice of modules that decide, and nothing that waits or
writes. Their ``.py`` files stay beside the extensions, which Python prefers: a module that is not
compiled, or a platform without them, works as ever. ``tests.compiled`` holds the two to the same
decisions, trace by trace. Compiled in a process and a directory of their own: mypyc reads no
settings of ours.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES: Final = (
    "extender/engine/pods/bits.py",
    "extender/engine/pods/claims.py",
    "extender/engine/placing/grow.py",
    "extender/engine/placing/explain.py",
    "extender/model/objects.py",
    "extender/model/moves.py",
    "extender/engine/placing/plan.py",
    "extender/engine/state/pool_pods.py",
    "extender/engine/state/pool_state.py",
    "extender/engine/state/cluster_state.py",
    "extender/engine/placing/evenly.py",
    "extender/engine/placing/pick.py",
    "extender/engine/placing/select.py",
    "extender/engine/policy/spread.py",
)
"""Where the time of a decision goes. The ledger is not among them: it tells true from 1, and
compiled code does not.
"""
PACKAGES: Final = ("extender", "webhook")
SWITCH: Final = "VREPLICA_COMPILE"
_SETUP: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules, sys.argv[1:] = sys.argv[1:], ["--quiet", "build_ext", "--inplace"]
setup(name="core", packages=[], ext_modules=mypycify(modules, opt_level="3"))
"""


class CompiledCore(BuildHookInterface[Any]):
    """Adds the extensions to a wheel where they are asked for."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it packs. Raises CalledProcessError."""
        if version == "editable" or os.environ.get(SWITCH) != "1":
            return
        self._built = tempfile.TemporaryDirectory(prefix="vreplica-compiled-")
        built = Path(self._built.name)
        for package in PACKAGES:
            shutil.copytree(Path(self.root) / package, built / package)
        compile_in(built)
        for extension in extensions_in(built):
            build_data["force_include"][str(extension)] = str(extension.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Called when it has packed."""
        if hasattr(self, "_built"):
            self._built.cleanup()


def compile_in(root: Path) -> None:
    """Put the extensions of ``MODULES`` beside them, under ``root``. Raises CalledProcessError
    where that fails.
    """
    setup = root / "compile_core.py"
    setup.write_text(_SETUP)
    try:
        subprocess.run(
            [sys.executable, setup.name, *MODULES],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            check=True,
        )
    finally:
        setup.unlink()
        shutil.rmtree(root / "build", ignore_errors=True)


def extensions_in(root: Path) -> Iterable[Path]:
    """The compiled files: one a module, and one that has the code of all."""
    return sorted(path for suffix in ("so", "pyd") for path in root.rglob(f"*.{suffix}"))


if __name__ == "__main__":
    compile_in(Path(sys.argv[1]))
