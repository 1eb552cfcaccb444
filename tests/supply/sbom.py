"""``make sbom``: the CycloneDX list of what the image has, made from Containerfile and locks and
from nothing else.

A generator of our own, since the one for Python brings thirty packages and knows neither our base
nor what an extra adds. No time and no serial number stand in it: the same locks make the same
bytes. Licenses are those that the packages' own metadata names where they are installed; the list
keeps the ones that it has of packages that are not installed here.
"""

import importlib.metadata
import json
import sys
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from tests.e2e.containerfile import instructions
from tests.supply.locks import ROOT, Locked, canonical, locked

FILE: Final = ROOT / "requirements" / "image.cdx.json"
_OURSELVES: Final = " (pyproject.toml"
_EXTRAS: Final = "image-"
"""Locks of extras are named after it; ``image-build`` is not in the image."""


def extras() -> dict[str, list[Locked]]:
    """Each extra's lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {name: locked(f"{_EXTRAS}{name}") for name in project["optional-dependencies"]}


def _license(each: Locked, known: Mapping[str, str]) -> str:
    """As installed in this version, else as it is known."""
    try:
        metadata = importlib.metadata.metadata(each.name)
    except importlib.metadata.PackageNotFoundError:
        return known.get(_ref(each), "")
    if metadata["Version"] != each.version:
        return known.get(_ref(each), "")
    names = [
        name.rpartition(" :: ")[2]
        for name in metadata.get_all("Classifier") or ()
        if "License ::" in name
    ]
    return metadata["License-Expression"] or " AND ".join(names) or metadata["License"] or ""


def _ref(each: Locked) -> str:
    return f"pkg:pypi/{each.name}@{each.version}"


def _component(each: Locked, scope: str, known: Mapping[str, str]) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _ref(each),
        "name": each.name,
        "version": each.version,
        "scope": scope,
        "purl": _ref(each),
        # Of all its files: which of them is installed depends on the architecture.
        "externalReferences": [
            {
                "type": "distribution",
                "url": _ref(each),
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in each.hashes],
            }
        ],
    }
    if name := _license(each, known):
        component["licenses"] = [{"license": {"name": name}}]
    if each.marker:
        component["properties"] = [{"name": "vreplica:marker", "value": each.marker}]
    return component


def _base() -> dict[str, Any]:
    """The image that ours is on: the last FROM."""
    image = [
        rest for word, rest in instructions((ROOT / "Containerfile").read_text()) if word == "FROM"
    ][-1]
    name, _, digest = image.partition("@sha256:")
    path, _, tag = name.rpartition(":")
    return {
        "type": "container",
        "bom-ref": image,
        "name": path,
        "version": tag,
        "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "purl": f"pkg:oci/{path.rpartition('/')[2]}@sha256%3A{digest}"
        f"?repository_url={path}&tag={tag}",
    }


def made(known: Mapping[str, str]) -> dict[str, Any]:
    """The list; ``known``: licenses by bom-ref. Raises LockError, OSError."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = f"pkg:pypi/{project['name']}@{project['version']}"
    scopes = {each.name: (each, "required") for each in locked("image")}
    for lock in extras().values():
        for each in lock:
            # Where an extra's lock has it too, its comments tell of both.
            scopes[each.name] = (each, scopes.get(each.name, (each, "optional"))[1])
    base = _base()
    asks: dict[str, set[str]] = {ours: {base["bom-ref"]}, base["bom-ref"]: set()}
    asks |= {_ref(each): set() for each, _ in scopes.values()}
    for each, _ in scopes.values():
        for who in each.via:
            by = ours if _OURSELVES in who else _ref(scopes[canonical(who.partition("[")[0])][0])
            asks[by].add(_ref(each))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": ours,
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": ours,
            }
        },
        "components": [base, *(_component(*scopes[name], known) for name in sorted(scopes))],
        "dependencies": [{"ref": ref, "dependsOn": sorted(asks[ref])} for ref in sorted(asks)],
    }


def text() -> str:
    """The file as it should be."""
    known = {}
    for each in json.loads(FILE.read_text())["components"] if FILE.exists() else ():
        for entry in each.get("licenses", ()):
            known[each["bom-ref"]] = entry["license"]["name"]
    return _a_line_each(made(known))


def _a_line_each(document: Mapping[str, Any]) -> str:
    """JSON with an element of a long list on a line of its own: what has changed is seen in
    a diff.
    """
    parts = []
    for key, value in document.items():
        told = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            told = (
                "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n]"
            )
        parts.append(f"{json.dumps(key)}: {told}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text())
    sys.stdout.write(
        f"{FILE.relative_to(ROOT)}: {len(json.loads(FILE.read_text())['components'])} components\n"
    )
