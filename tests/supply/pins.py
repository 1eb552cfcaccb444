"""What is fetched from elsewhere and not pinned, as sentences: each function takes texts and
returns what it finds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from tests.e2e.containerfile import instructions
from tests.supply.locks import Locked, LockError, canonical, locked_in

DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
OURS: Final = "vreplica-scheduler:"
"""Our own image, which whoever builds it names."""
MADE_UP: Final = "registry.example/"
"""Stands for a user's registry in examples (RFC 2606)."""


def bases(containerfile: str) -> Iterator[str]:
    """FROM lines without a digest."""
    stages: set[str] = set()
    for keyword, rest in instructions(containerfile):
        if keyword != "FROM":
            continue
        image, _, stage = rest.partition(" AS ")
        if image not in stages and not DIGEST.fullmatch(image):
            yield f"FROM {image}: no digest"
        stages.add(stage)


def images_in(document: object) -> Iterator[str]:
    """Every string under a key ``image``, at any depth."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            if key == "image" and isinstance(value, str):
                yield value
            yield from images_in(value)
    elif isinstance(document, list):
        for each in document:
            yield from images_in(each)


def images(manifest: str) -> Iterator[str]:
    """Images of a manifest without a digest, ours and those of examples excepted."""
    for document in yaml.safe_load_all(manifest):
        for image in images_in(document):
            if not image.startswith((OURS, MADE_UP)) and not DIGEST.fullmatch(image):
                yield f"image {image}: no digest"


def template_images(template: str) -> Iterator[str]:
    """Images that a template of the chart names by itself instead of by a value."""
    for line in template.splitlines():
        key, _, image = line.strip().removeprefix("- ").partition(":")
        if key == "image" and image.strip() and not image.strip().startswith("{{ include "):
            yield f"{line.strip()}: by no value of the chart"


def packages(commands: Iterable[str]) -> Iterator[str]:
    """What shell commands install without a lock: by apt-get without a version, by pip without
    hashes.
    """
    for command in commands:
        for part in re.split(r"&&|\|\||[;{}]|\bthen\b|\bdo\b", command):
            words = part.split()
            if "apt-get" in words and "install" in words:
                names = [
                    word for word in words[words.index("install") + 1 :] if not word.startswith("-")
                ]
                yield from (
                    f"apt-get install {name}: no version" for name in names if "=" not in name
                )
            if "pip" in words and "install" in words:
                ours = {"--no-deps"} <= set(words) and {"--no-index", "--no-build-isolation"} & set(
                    words
                )
                if "--require-hashes" not in words and not ours:
                    yield f"{part.strip()}: no hashes"


def first_pip(commands: Iterable[str]) -> Iterator[str]:
    """Environments with a pip of their own whose first installation is not the locked pip."""
    made: list[str] = []
    for command in commands:
        for part in command.split("&&"):
            words = part.split()
            if "venv" in words and "--without-pip" not in words:
                made.append(words[-1])
            elif made and "pip" in words and "install" in words and words[0].startswith(made[-1]):
                if words[-1] != "requirements/pip.txt":
                    yield f"{part.strip()}: before the locked pip"
                made.pop()
    yield from (f"{environment}: no locked pip" for environment in made)


def lock(text: str, name: str = "lock") -> Iterator[str]:
    """Lines of a lock file that pin nothing, and packages without a hash."""
    try:
        yield from (
            f"{name}: {each.name}: no hash" for each in locked_in(text, name) if not each.hashes
        )
    except LockError as error:
        yield str(error)


def extras(
    project: Mapping[str, Any], locks: Mapping[str, list[Locked]], image: list[Locked]
) -> Iterator[str]:
    """Extras of a pyproject.toml without a lock, or with one that does not go with the image's."""
    for extra, wanted in project.get("optional-dependencies", {}).items():
        if extra not in locks:
            yield f"extra {extra}: no lock"
            continue
        versions = {each.name: each.version for each in locks[extra]}
        for requirement in wanted:
            name = canonical(re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0])
            if name not in versions:
                yield f"extra {extra}: {name} is not in its lock"
        for each in image:
            if versions.get(each.name) != each.version:
                yield f"extra {extra}: {each.name} is not {each.version}, as in the image"
