"""Container images without an engine: ours by the Containerfile's own steps, kube-scheduler's and
the adapters' from one program.

Theory of operation. ``ChrootBuild`` runs the Containerfile in root file systems that mmdebstrap has
made: each stage begins as a copy of the same Debian with Python, COPY copies, RUN runs in a chroot
with the file's own paths. The last stage's tree is packed as one layer of an OCI archive, with the
entry point, variables and user that the file names. containerd imports such an archive as it is.

Differs from an engine's: the base is Debian's Python (3.11) instead of
``python:3.12.14-slim-trixie``, and there is one layer. A built image is kept in the cache under a
hash of all that goes into it.
"""

import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from extender import __version__
from tests.e2e.build import cache_dir
from tests.e2e.containerfile import Build, Stage, StepFailed

ROOT: Final = Path(__file__).parents[2]
OURS: Final = f"docker.io/library/vreplica-scheduler:{__version__}"
INPUTS: Final = (
    "Containerfile",
    "requirements",
    "pyproject.toml",
    "hatch_build.py",
    "README.md",
    "LICENSE",
    "extender",
    "webhook",
    "manifests",
)
SUITE: Final = "bookworm"
PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
STEP_TIMEOUT_S: Final = 900.0
_CHROOT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_OCI: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Content:
    """What an image is made of: a tree or some files, and how it starts."""

    entrypoint: Sequence[str]
    tree: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    """Path in the image to a file here."""
    links: Mapping[str, str] = field(default_factory=dict)
    directories: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


class ChrootBuild(Build):
    """The Containerfile's steps, each stage in a root file system of its own that begins as a copy
    of ``base``.
    """

    def __init__(self, base: Path, directory: Path, args: Mapping[str, str]) -> None:
        self._base = base
        super().__init__(ROOT / "Containerfile", ROOT, directory, base / "usr/bin/python3", args)

    def _begin(self, stage: Stage) -> None:
        subprocess.run(["cp", "-a", self._base, stage.root], check=True, timeout=STEP_TIMEOUT_S)
        if stage.root.name.endswith("build"):
            # What the image python has and Debian keeps apart.
            self._stage = stage
            packages = "python3-dev gcc libc6-dev"
            self._run(
                f"apt-get update -qq && apt-get install -qq --no-install-recommends {packages}"
            )

    def _run(self, command: str) -> None:
        stage = self._stage
        words = {"PATH": _CHROOT_PATH, "HOME": "/root", "LANG": "C.UTF-8", **_reaching_packages()}
        done = subprocess.run(
            [
                "chroot",
                stage.root,
                "/bin/sh",
                "-e",
                "-c",
                f"cd {shlex.quote(stage.folder)}; {command}",
            ],
            env={**words, **stage.args, **stage.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=STEP_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise StepFailed(f"RUN {command}\n{done.stdout[-4000:]}")


def _reaching_packages() -> dict[str, str]:
    """How this machine reaches packages; folders of this machine are not in the chroot."""
    kept = (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_DEFAULT_TIMEOUT",
        "HTTP",
        "http",
        "NO_PROXY",
        "no_proxy",
    )
    return {name: value for name, value in os.environ.items() if name.startswith(kept)}


def make_base(target: Path) -> None:
    """A Debian with Python that reaches packages as this machine does. Raises
    CalledProcessError.
    """
    left_out = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
    subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in left_out),
            SUITE,
            target,
        ],
        check=True,
        timeout=STEP_TIMEOUT_S,
    )
    (target / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    shutil.copy("/etc/resolv.conf", target / "etc/resolv.conf")
    if _AUTHORITIES.exists():
        shutil.copy(_AUTHORITIES, target / _AUTHORITIES.relative_to("/"))


def pack(name: str, content: Content, out: Path) -> Path:
    """``content`` as an OCI archive of one layer, named ``name``. The layer goes by the disk: it
    may be hundreds of MB.
    """
    with tempfile.TemporaryDirectory(prefix="vreplica-image-", dir=out.parent) as scratch:
        layer = Path(scratch) / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            _fill(tar, content)
        with layer.open("rb") as file:
            layer_digest = hashlib.file_digest(file, "sha256").hexdigest()
        config = {
            "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
            "os": "linux",
            "config": {
                "Entrypoint": list(content.entrypoint),
                "Env": [f"{key}={value}" for key, value in content.env.items()],
                "User": content.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        }
        blobs = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        config_entry = _blob(blobs, "config.v1+json", config)
        layer_entry = _descriptor("layer.v1.tar", layer_digest, layer.stat().st_size)
        kind = f"{_OCI}.manifest.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": config_entry,
            "layers": [layer_entry],
        }
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        entry = _blob(blobs, "manifest.v1+json", manifest) | {"annotations": names}
        blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
        made = Path(scratch) / "image.tar"
        with tarfile.open(made, "w") as tar:
            tar.add(layer, arcname=f"blobs/sha256/{layer_digest}")
            for path, data in blobs.items():
                info = tarfile.TarInfo(path)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        made.rename(out)
    return out


def _fill(tar: tarfile.TarFile, content: Content) -> None:
    if content.tree is not None:
        tar.add(content.tree, arcname=".")
    for path in content.directories:
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)
    for path, source in content.files.items():
        info = tarfile.TarInfo(path.lstrip("/"))
        info.size, info.mode = source.stat().st_size, 0o755
        with source.open("rb") as file:
            tar.addfile(info, file)
    for path, target in content.links.items():
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.linkname = tarfile.SYMTYPE, target
        tar.addfile(info)


def _descriptor(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": size}


def _blob(blobs: dict[str, bytes], kind: str, value: object) -> dict[str, object]:
    data = json.dumps(value).encode()
    digest = hashlib.sha256(data).hexdigest()
    blobs[f"blobs/sha256/{digest}"] = data
    return _descriptor(kind, digest, len(data))


def _key() -> str:
    digest = hashlib.sha256(f"{SUITE} {PACKAGES} {os.uname().machine}".encode())
    digest.update(Path(__file__).read_bytes())
    for name in INPUTS:
        path = ROOT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def image_file() -> Path:
    """Where the image of this checkout is, or will be."""
    return cache_dir().with_name("image") / f"{_key()}.tar"


def build(args: Mapping[str, str] | None = None) -> Path:
    """The image of this checkout, built unless it is there. Needs root. Raises StepFailed,
    CalledProcessError.
    """
    target = image_file()
    if target.exists():
        return target
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        base = Path(scratch) / "base"
        make_base(base)
        made = ChrootBuild(base, Path(scratch) / "image", args or {}).stages[""]
        told = dict(made.told)
        env = {"PATH": made.env["PATH"].replace("$PATH", _CHROOT_PATH)}
        content = Content(
            json.loads(told["ENTRYPOINT"]), made.root, env={**made.env, **env}, user=made.user
        )
        pack(OURS, content, Path(scratch) / "ours.tar").rename(target)
    for old in folder.glob("*.tar"):
        if old != target:
            old.unlink()
    return target


def main() -> int:
    """Builds the image of this checkout: ``python -m tests.nodes.image``."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        sys.stdout.write(
            "image: needs root and mmdebstrap; the tests on real nodes will be skipped\n"
        )
        return 0
    started = time.monotonic()
    file = build()
    size = file.stat().st_size >> 20
    sys.stdout.write(f"image: {file.name}, {size} MiB, in {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
