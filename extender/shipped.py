"""The manifests that ship with the package, for commands that install or simulate with them as they
are.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml


def manifests_dir() -> Path:
    """The shipped manifests: in the package where it is installed, beside it in a checkout."""
    inside = Path(str(files("extender"))) / "manifests"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[1] / "manifests"


@cache
def manifests(name: str) -> tuple[Any, ...]:
    """The documents of one of them, read once. ``name``: its path below ``manifests_dir``. Not to
    be changed.
    """
    return tuple(doc for doc in yaml.safe_load_all((manifests_dir() / name).read_text()) if doc)
