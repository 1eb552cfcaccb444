"""The manifests that ship with the package. Commands install or simulate with them."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml


def manifests_dir() -> Path:
    """The folder of the manifests: in the package if it is installed, beside it in a checkout."""
    inside = Path(str(files("extender"))) / "manifests"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[1] / "manifests"


@cache
def manifests(name: str) -> tuple[Any, ...]:
    """Read the documents of one manifest, once. ``name`` is its path below ``manifests_dir``.
    Callers must not change the result.
    """
    return tuple(doc for doc in yaml.safe_load_all((manifests_dir() / name).read_text()) if doc)
