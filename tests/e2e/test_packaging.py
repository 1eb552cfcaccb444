"""What is shipped works where nothing else is: the image's steps, the wheel and the sdist, each in
an environment of its own.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from extender import __version__
from extender.cli.main import NO_LAB
from extender.cli.terminal.exit_status import ERROR
from tests.e2e.containerfile import Build, StepFailed, instructions
from tests.supply import krew
from tests.supply.locks import canonical

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "Containerfile"
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
EXAMPLES = ROOT / "manifests" / "examples"
INSTALL_TIMEOUT_S = 300

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def run(
    *command: str | Path,
    folder: Path,
    timeout_s: float = INSTALL_TIMEOUT_S,
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a program says; away from the checkout, and with nothing of this environment but where
    packages come from and ``more`` variables.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_CERT", "HTTP", "http"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb", **kept, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def works(programs: Path, folder: Path) -> None:
    """The programs of an installation, as a user tries them first."""
    assert run(programs / "vreplica", "--version", folder=folder) == f"vreplica {__version__}\n"
    assert "--secret" in run(programs / "vreplica-webhook", "--help", folder=folder)
    assert "plan" in run(programs / "kubectl-vreplica", "--help", folder=folder)
    where = run(
        programs / "python", "-I", "-c", "import extender; print(extender.__file__)", folder=folder
    )
    assert Path(where.strip()).is_relative_to(programs.parent)
    config = EXAMPLES.parent / "base" / "service-config.yaml"
    assert "is valid" in run(programs / "vreplica", "config", "check", config, folder=folder)
    files = [f"-f{EXAMPLES / name}" for name in ("pool.yaml", "vpods.yaml", "plan/pods.yaml")]
    planned = json.loads(
        run(programs / "vreplica", "plan", "--autoscale", "-o", "json", *files, folder=folder)
    )
    assert planned


def runs_the_embedded_cluster(programs: Path, folder: Path) -> None:
    assert json.loads(run(programs / "vreplica", "run", "--once", "-o", "json", folder=folder))


def has_no_embedded_cluster(programs: Path, packages: Path) -> None:
    assert not (packages / "extender" / "lab").exists()
    for words in (["run", "--once"], ["cluster"], ["simulate", "--faults"]):
        done = subprocess.run(
            [str(programs / "vreplica"), *words], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (ERROR, "")
        assert done.stderr == f"vreplica: {NO_LAB}\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the locked build tools alone."""
    return installed(
        tmp_path_factory.mktemp("build"), "-r", str(ROOT / "requirements" / "image-build.txt")
    )


def installed(folder: Path, *what: str) -> Path:
    """The programs' folder of a new environment with that."""
    run(PYTHON, "-m", "venv", folder / "venv", folder=folder)
    programs = folder / "venv" / "bin"
    run(
        programs / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        *what,
        folder=folder,
    )
    return programs


@pytest.fixture(scope="module")
def distributions(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = ("-m", "hatchling", "build", "-d", folder)
    run(environment / "python", *command, folder=ROOT)
    return folder


def names_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_works_in_an_empty_environment(kind: str, distributions: Path, tmp_path: Path):
    programs = installed(tmp_path, "-r", str(ROOT / "requirements" / "image.txt"))
    archive = only(distributions, "*.whl" if kind == "wheel" else "*.tar.gz")
    if kind == "sdist":
        locked = str(ROOT / "requirements" / "image-build.txt")
        run(
            programs / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "-r",
            locked,
            folder=tmp_path,
        )
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(programs / "python", "-m", "pip", "install", *options, archive, folder=tmp_path)
    works(programs, tmp_path)
    runs_the_embedded_cluster(programs, tmp_path)


def test_the_wheel_has_the_manifests_and_the_chart_and_nothing_of_the_tests(distributions: Path):
    names = names_in_wheel(only(distributions, "*.whl"))
    assert {name.partition("/")[0] for name in names} == {"extender", "webhook"}
    for shipped in ("base/scheduler.yaml", "crds/vpods.yaml", "helm/vreplica-scheduler/Chart.yaml"):
        assert f"extender/manifests/{shipped}" in names
    assert "extender/manifests/helm/vreplica-scheduler/templates/_helpers.tpl" in names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_sdist_makes_the_same_wheel_and_has_no_more_than_it_needs(
    distributions: Path, environment: Path, tmp_path: Path
):
    with tarfile.open(only(distributions, "*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert {path.name for path in source.iterdir()} == {
        *("extender", "webhook", "manifests", "requirements"),
        *(
            "pyproject.toml",
            "hatch_build.py",
            "README.md",
            "CHANGELOG.md",
            "LICENSE",
            "PKG-INFO",
            ".gitignore",
        ),
    }
    run(
        environment / "python",
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        tmp_path,
        folder=source,
    )
    assert names_in_wheel(only(tmp_path, "*.whl")) == names_in_wheel(only(distributions, "*.whl"))


def test_what_krew_installs_runs_by_a_link_and_installs_what_is_locked_once(tmp_path: Path):
    packed, _ = krew.write(tmp_path / "dist", "https://example.com/vreplica.tar.gz")
    store, links = tmp_path / "store", tmp_path / "bin"
    with tarfile.open(packed) as archive:
        archive.extractall(store, filter="data")
    links.mkdir()
    program = links / "kubectl-vreplica"
    program.symlink_to(Path("..") / "store" / krew.LAUNCHER.name)
    version = run(program, "--version", folder=tmp_path, more={"VREPLICA_PYTHON": str(PYTHON)})
    assert version == f"vreplica {__version__}\n"
    # Nothing is installed a second time: there is no Python to do it with.
    none = {"VREPLICA_PYTHON": "/nonexistent"}
    assert "usage: kubectl vreplica" in run(program, "--help", folder=tmp_path, more=none)
    assert json.loads(run(program, "run", "--once", "-o", "json", folder=tmp_path, more=none))
    assert {path.name for path in store.iterdir() if path.is_dir()} == {"environment"}


@pytest.mark.parametrize(
    ("args", "compiled", "extra"),
    [
        pytest.param({}, True, False, id="as it is"),
        pytest.param({"COMPILE": ""}, False, False, id="COMPILE="),
        pytest.param({"COMPILE": "", "EXTRAS": "otel"}, False, True, id="EXTRAS=otel"),
    ],
)
def test_the_images_steps_make_an_environment_that_works(
    args: dict[str, str], compiled: bool, extra: bool, tmp_path: Path
):
    build = Build(CONTAINERFILE, ROOT, tmp_path / "image", PYTHON, args)
    last = build.stages[""]
    programs = last.root / "opt" / "vreplica" / "bin"
    # An environment knows where it is: what is copied into the last stage is asked where the first
    # has made it.
    made = build.stages["build"].root / "opt" / "vreplica" / "bin"
    works(made, tmp_path)
    packages = only(programs.parent / "lib", "python*/site-packages")
    has_no_embedded_cluster(made, packages)
    assert bool(list(packages.glob("extender/engine/placing/*.so"))) is compiled
    assert (packages / "opentelemetry").exists() is extra
    assert {"pip", "hatchling", "mypy", "setuptools"}.isdisjoint(
        path.name for path in packages.iterdir()
    )
    assert list(packages.glob("extender/engine/placing/__pycache__/*.pyc")), (
        "nothing can be written there later"
    )
    assert last.user == "65532:65532"
    assert last.env["PATH"].startswith("/opt/vreplica/bin:")
    shipped = last.root / "usr/share/vreplica-scheduler/image.cdx.json"
    assert json.loads(shipped.read_text())["bomFormat"] == "CycloneDX"
    components = {each["name"]: each for each in json.loads(shipped.read_text())["components"]}
    installed_here = {
        canonical(each.name) for each in importlib.metadata.distributions(path=[str(packages)])
    } - {"vreplica-scheduler"}
    assert installed_here <= set(components)
    required = {name for name, each in components.items() if each["scope"] == "required"}
    assert bool(installed_here - required) is extra


def test_the_image_starts_from_one_base_is_labelled_and_names_its_program():
    told = list(instructions(CONTAINERFILE.read_text()))
    bases = [rest.partition(" AS ")[0] for keyword, rest in told if keyword == "FROM"]
    names = [base.partition("@")[0] for base in bases]
    assert len(bases) == 2
    assert names[0] == names[1].replace("-slim", ""), "byte code and extensions are of one Python"
    (labels,) = [rest for keyword, rest in told if keyword == "LABEL"]
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert ("ENTRYPOINT", '["vreplica"]') in told
    assert f"ARG VERSION={__version__}" in CONTAINERFILE.read_text()
    assert not [keyword for keyword, _ in told if keyword == "HEALTHCHECK"]


def test_all_that_the_image_installs_is_there_ready_made_for_the_other_architecture_too(
    tmp_path: Path,
):
    architecture = "x86_64" if platform.machine() in {"aarch64", "arm64"} else "aarch64"
    platforms = [f"--platform=manylinux_2_{minor}_{architecture}" for minor in (28, 17)]
    report = tmp_path / "report.json"
    command: Sequence[str | Path] = (
        *(
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            f"--target={tmp_path / 'none'}",
        ),
        *platforms,
        *(
            f"--platform=manylinux2014_{architecture}",
            "--python-version=3.12",
            "--only-binary=:all:",
        ),
        *("--require-hashes", f"--report={report}", "-r", ROOT / "requirements" / "image.txt"),
    )
    run(PYTHON, *command, folder=tmp_path)
    found = [entry["metadata"]["name"] for entry in json.loads(report.read_text())["install"]]
    assert {"aiohttp", "cryptography", "orjson", "uvloop"} <= set(found)


def test_a_step_that_fails_is_told_with_its_words(tmp_path: Path):
    file = tmp_path / "Containerfile"
    file.write_text("FROM scratch\nWORKDIR /src\nRUN echo it broke && exit 3\n")
    with pytest.raises(StepFailed, match="it broke"):
        Build(file, tmp_path, tmp_path / "image", PYTHON, {})
