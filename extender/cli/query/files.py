"""Reads manifests from files and standard input, YAML or JSON, within limits."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from extender.engine.state.manifests import Manifests
from extender.model.errors import InvalidObject
from extender.model.yaml_errors import NOT_YAML, why_not_yaml

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
DEPTH_MAX: Final = 200
"""Levels of nesting in a file; a Kubernetes object needs about twenty."""


def read_files(files: Sequence[str], command: str) -> Manifests:
    """Read all objects of the files, "-" for standard input. Skipped objects are reported on
    stderr. Raises InvalidObject.
    """
    manifests = Manifests()
    for name in files:
        for document in _documents(name):
            manifests.add(document, "standard input" if name == "-" else name)
    if manifests.skipped:
        print(
            f"vreplica {command}: skipped {', '.join(manifests.skipped[:10])}"[:500],
            file=sys.stderr,
        )
    return manifests


def _documents(name: str) -> list[object]:
    """All documents of a file, YAML or JSON (which is YAML)."""
    try:
        raw = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if name == "-" else _read(name)
    except OSError as error:
        raise InvalidObject(name, "", f"cannot be read: {error.strerror}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise InvalidObject(name, "", f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        if raw.lstrip()[:1] == b"{":
            return [json.loads(raw)]
    except (ValueError, RecursionError):
        # Several JSON documents, YAML in flow style, or nested too deeply (refused below).
        pass
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(raw, loader, name)
        return list(yaml.load_all(raw, Loader=loader))
    except NOT_YAML as error:
        raise InvalidObject(name, "", f"is neither YAML nor JSON: {why_not_yaml(error)}") from error


def _refuse_depth(raw: bytes, loader: type[yaml.SafeLoader], name: str) -> None:
    """Refuse deep nesting: the C loader recurses without a limit, and would crash the process."""
    depth = 0
    for event in yaml.parse(raw, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidObject(name, "", f"is nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _read(name: str) -> bytes:
    with Path(name).open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)
