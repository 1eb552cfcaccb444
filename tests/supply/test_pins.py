"""Nothing comes in by a name that may mean something else tomorrow."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.containerfile import instructions
from tests.supply import pins
from tests.supply.locks import REQUIREMENTS, ROOT, Locked, LockError, locked, locked_in

CONTAINERFILE = (ROOT / "Containerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
MANIFESTS = ROOT / "manifests"
CHART = MANIFESTS / "helm" / "vreplica-scheduler"
DIGEST = f"sha256:{'ab' * 32}"
PIP = "python -m pip install"


def runs(containerfile: str) -> list[str]:
    return [rest for keyword, rest in instructions(containerfile) if keyword == "RUN"]


def stamp_rule() -> list[str]:
    """The commands that make the environment of this checkout; its programs in a folder instead of
    a variable.
    """
    rule = (
        MAKEFILE.partition("$(VENV)/stamp-%:")[2]
        .partition("\n\n")[0]
        .replace("$(BIN)", "/venv/bin")
    )
    lines = [line.strip().lstrip("@") for line in rule.splitlines()[1:]]
    return [re.sub(r"^test -x \S+ \|\| ", "", line).replace("$(VENV)", "/venv") for line in lines]


def yaml_files() -> list[Path]:
    return [
        path
        for path in sorted(MANIFESTS.rglob("*.yaml"))
        if not path.is_relative_to(CHART / "templates")
    ]


class TestTheRepository:
    def test_bases_have_a_digest(self):
        assert list(pins.bases(CONTAINERFILE)) == []

    @pytest.mark.parametrize(
        "path", yaml_files(), ids=lambda path: str(path.relative_to(MANIFESTS))
    )
    def test_images_of_manifests_have_a_digest(self, path: Path):
        assert list(pins.images(path.read_text())) == []

    def test_images_of_the_charts_templates_are_values(self):
        texts = [path.read_text() for path in sorted((CHART / "templates").rglob("*.*"))]
        assert sum("image: {{ include " in text for text in texts) >= 4
        assert [found for text in texts for found in pins.template_images(text)] == []

    def test_what_the_image_is_made_of_is_locked(self):
        assert sum("pip" in command for command in runs(CONTAINERFILE)) >= 4
        assert list(pins.packages(runs(CONTAINERFILE))) == []
        assert list(pins.first_pip(runs(CONTAINERFILE))) == []

    def test_no_script_of_a_package_runs_as_the_image_is_made(self):
        fetching = [command for command in runs(CONTAINERFILE) if "--require-hashes" in command]
        assert len(fetching) == 4
        assert [command for command in fetching if "--only-binary :all:" not in command] == []

    def test_so_is_the_environment_of_a_checkout(self):
        assert sum("pip" in command for command in stamp_rule()) == 3
        assert list(pins.packages(stamp_rule())) == []
        assert list(pins.first_pip(stamp_rule())) == []

    def test_nothing_else_of_the_makefile_installs_by_pip(self):
        installs = [line for line in MAKEFILE.splitlines() if "pip install" in line]
        assert len(installs) == len([line for line in stamp_rule() if "pip install" in line])

    @pytest.mark.parametrize("path", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda path: path.name)
    def test_locks_have_a_version_and_a_hash_for_everything(self, path: Path):
        assert list(pins.lock(path.read_text(), path.name)) == []
        assert locked(path.stem)

    def test_extras_have_a_lock_that_goes_with_the_images(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        locks = {
            path.stem.removeprefix("image-"): locked(path.stem)
            for path in REQUIREMENTS.glob("image-*.txt")
        }
        assert project["optional-dependencies"]
        assert list(pins.extras(project, locks, locked("image"))) == []

    def test_pip_is_one_locked_package(self):
        assert [each.name for each in locked("pip")] == ["pip"]
        # pip-audit brings pip, too: installing it must not change it.
        assert {each.version for each in locked("audit") if each.name == "pip"} == {
            locked("pip")[0].version
        }


class TestWhatIsFound:
    """Each of the functions above on what it is there to find."""

    @pytest.mark.parametrize(
        "base",
        [
            "python:3.12",
            "python:3.12@sha256:12",
            "python:${PYTHON}",
            f"python:3.12@md5:{'ab' * 32}",
        ],
    )
    def test_a_base_without_a_digest(self, base: str):
        told = list(pins.bases(f"FROM python@{DIGEST} AS build\nFROM build AS more\nFROM {base}\n"))
        assert told == [f"FROM {base}: no digest"]

    def test_an_image_without_a_digest_wherever_it_stands(self):
        pod = (
            f"spec: {{initContainers: [{{image: 'a:1'}}], containers: [{{image: 'b:1@{DIGEST}'}}, "
            f"{{image: c}}]}}"
        )
        told = list(pins.images(f"a: 1\n---\n{pod}\n---\nimage: vreplica-scheduler:0.1.0\n"))
        assert told == ["image a:1: no digest", "image c: no digest"]

    def test_an_image_of_a_template(self):
        assert list(
            pins.template_images("- image: busybox:1\n  image: {{ include . }}\nimage:\n  tag: 1\n")
        ) == ["- image: busybox:1: by no value of the chart"]

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            ("apt-get update && apt-get install --yes gcc", "gcc: no version"),
            ('if [ "$X" = 1 ]; then apt-get install -y gcc=4:12 make; fi', "make: no version"),
            (f"{PIP} aiohttp", "no hashes"),
            (f"{PIP} --upgrade pip", "no hashes"),
            (f"{PIP} -r requirements/image.txt", "no hashes"),
            (f"for e in otel; do {PIP} x.whl[$e]; done", "no hashes"),
            (f"{PIP} --no-deps x", "no hashes"),
        ],
    )
    def test_what_is_installed_without_a_lock(self, command: str, told: str):
        [found] = pins.packages([command])
        assert told in found

    @pytest.mark.parametrize(
        "command",
        [
            "apt-get install gcc=4:12.2.0-3",
            f"{PIP} --require-hashes -r x.txt",
            f"{PIP} --no-deps --no-index x.whl",
        ],
    )
    def test_and_what_is_locked_is_not(self, command: str):
        assert list(pins.packages([command])) == []

    @pytest.mark.parametrize(
        "commands",
        [
            [
                "python -m venv /opt/a && /opt/a/bin/python -m pip install --require-hashes -r "
                "requirements/image.txt"
            ],
            ["python -m venv /opt/a"],
        ],
    )
    def test_an_environment_whose_pip_is_any(self, commands: Sequence[str]):
        assert len(list(pins.first_pip(commands))) == 1

    @pytest.mark.parametrize(
        "line", ["aiohttp", "aiohttp>=3", "-e .", "aiohttp==3 \\\n  --hash=md5:ab"]
    )
    def test_a_lock_that_pins_nothing(self, line: str):
        assert list(pins.lock(line))
        with pytest.raises(LockError, match="lock:"):
            locked_in(line)

    def test_a_locked_package_without_a_hash(self):
        text = f"a==1 \\\n    --hash=sha256:{'ab' * 32}\nb==2 ; python_version < '3'\n    # via a\n"
        assert list(pins.lock(text)) == ["lock: b: no hash"]
        assert locked_in(text)[1] == Locked("b", "2", "python_version < '3'", [], ["a"])

    def test_an_extra_without_a_lock_or_with_another_ones(self):
        project = {"optional-dependencies": {"x": ["a.B>=1"], "y": ["c"]}}
        locks = {"x": [Locked("z", "2")]}
        assert list(pins.extras(project, locks, [Locked("z", "1")])) == [
            "extra x: a-b is not in its lock",
            "extra x: z is not 1, as in the image",
            "extra y: no lock",
        ]
