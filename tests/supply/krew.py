"""``make krew``: the command line as a plug-in of kubectl, in the form that krew installs: an
archive and its manifest.

krew unpacks an archive per platform and links one program of it
(krew.sigs.k8s.io/docs/developer-guide/plugin-manifest). Ours is one archive for Linux and macOS:
our wheel, the lock of what it needs, and a launcher (``clients/krew/kubectl-vreplica``) that makes
an environment of them at the first call. A zipapp could not hold the compiled packages, and an
archive with them would be of one Python. The same checkout makes the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import yaml

from extender import __version__
from tests.supply.locks import ROOT

NAME: Final = "vreplica"
LAUNCHER: Final = ROOT / "clients" / "krew" / "kubectl-vreplica"
ARCHIVE: Final = f"kubectl-{NAME}-{__version__}.tar.gz"
BUILD_TIMEOUT_S: Final = 300.0
_EPOCH: Final = 315532800
"""1980: the first time that a zip, and so a wheel, can have."""


def wheel(folder: Path) -> Path:
    """Our wheel, built into ``folder``. Raises CalledProcessError."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=BUILD_TIMEOUT_S,
    )
    return folder / f"vreplica_scheduler-{__version__}-py3-none-any.whl"


def archive(built: Path) -> bytes:
    """A gzipped tar: launcher, wheel, lock and license, without a folder."""
    members = {
        LAUNCHER.name: LAUNCHER,
        built.name: built,
        "requirements.txt": ROOT / "requirements" / "image.txt",
        "LICENSE": ROOT / "LICENSE",
    }
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=_EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, path in sorted(members.items()):
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), _EPOCH
            member.mode = 0o755 if path is LAUNCHER else 0o644
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def manifest(content: bytes, uri: str) -> dict[str, Any]:
    """krew's Plugin for this archive, which is to be had at ``uri``."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{__version__}",
            "shortDescription": "Explain where vreplicas are placed, and why",
            "description": "Says why a vpod's vreplicas are where they are or wait, shows pools "
            "and what a\nchange would do, and checks an installation of vreplica-scheduler.\n",
            "caveats": "Needs Python 3.11 or later with its venv module. The first call installs "
            "its packages from your\npackage index, with locked hashes.\n",
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [
                            {"key": "os", "operator": "In", "values": ["linux", "darwin"]},
                            {"key": "arch", "operator": "In", "values": ["amd64", "arm64"]},
                        ]
                    },
                    "uri": uri,
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bin": LAUNCHER.name,
                }
            ],
        },
    }


def write(folder: Path, uri: str) -> tuple[Path, Path]:
    """Archive and manifest, written into ``folder``; ``uri`` is where the archive will be."""
    folder.mkdir(parents=True, exist_ok=True)
    content = archive(wheel(folder))
    packed, described = folder / ARCHIVE, folder / f"{NAME}.yaml"
    packed.write_bytes(content)
    described.write_text(yaml.safe_dump(manifest(content, uri), sort_keys=False))
    return packed, described


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.supply.krew", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--uri", required=True, help="https URL from which krew downloads it")
    options = parser.parse_args()
    if not options.uri.startswith("https://") or not options.uri.endswith(".tar.gz"):
        parser.error(f"--uri {options.uri}: expected https://HOST/PATH.tar.gz")
    for path in write(options.folder, options.uri):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
