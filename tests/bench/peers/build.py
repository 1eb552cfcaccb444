"""Builds the Go peer, ``noop/``, into a cache beside the control plane's: ``cache_dir()/KEY/noop``.

KEY is a hash of its sources, of the flags and of the platform. The build happens in a sibling
folder that is renamed at the end, so that the folder KEY is complete or absent, also when two
builds race or one is killed.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.bench.registry import Skipped
from tests.e2e.build import cache_dir as control_plane_cache_dir

SOURCES: Final = Path(__file__).parent / "noop"
BUILD_TIMEOUT_S: Final = 1800.0
_FLAGS: Final = ("-trimpath", "-ldflags=-s -w")


def build_key() -> str:
    """Hash of all that decides what comes out, 16 hex digits."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {_FLAGS}".encode())
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((SOURCES / name).read_bytes())
    return digest.hexdigest()[:16]


def noop_program() -> Path:
    """The no-op extender in Go, built unless it is there: seconds after the control plane's build,
    minutes when cold.

    Raises Skipped without Go, or with the compiler's words.
    """
    target = control_plane_cache_dir().with_name("bench") / build_key()
    program = target / "noop"
    if program.is_file():
        return program
    if shutil.which("go") is None:
        raise Skipped("its peer is a no-op extender in Go, and Go is not installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        _build(scratch / "noop")
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            # Another build of the same key was first; its result is as good as ours.
            if not program.is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return program


def _build(program: Path) -> None:
    try:
        done = subprocess.run(
            ["go", "build", *_FLAGS, "-o", str(program), "."],
            cwd=SOURCES,
            env={
                **os.environ,
                "CGO_ENABLED": "0",
                "GOFLAGS": "-mod=readonly -buildvcs=false",
                "GOWORK": "off",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Skipped(f"its peer in Go was not built within {BUILD_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise Skipped(f"its peer in Go does not build:\n{done.stdout[-2000:]}")
