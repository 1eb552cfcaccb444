"""The profiles of one service: the built-in ones, and those that its configuration file adds.

::

    profiles:
      - name: three-zones                       # plugins, see extender.core.policy.profile_document
        scores: [{name: ZoneSpread, weight: 10}]
      - name: as-before                         # Knative's ConfigMaps as they are; files beside the configuration file
        knativeConfigMaps: {scheduler: config-kafka-scheduler.yaml, descheduler: config-kafka-descheduler.yaml}

``ignoreUnknown: true`` beside the two files leaves out names that are no plugin, as Knative does, in place of an error.

Read once, at start, and by ``vreplica config check``. Installed packages may bring plugins (``extender.plugins``).
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from extender.core.errors import InvalidObject
from extender.core.policy.knative_configmap import knative_document
from extender.core.policy.profile import Profile
from extender.core.policy.profile_document import profile_from
from extender.core.policy.profiles import BUILT_IN_PROFILES
from extender.plugins import load_entry_points
from extender.service.config import Config, read_document

_IMPORT: Final = "knativeConfigMaps"
_IMPORTED: Final = ("scheduler", "descheduler")
_IGNORE: Final = "ignoreUnknown"


def load_profiles(config: Config, path: str) -> Mapping[str, Profile]:
    """All profiles by name. ``path``: the configuration file's, whose folder relative names start from.

    Raises InvalidObject naming the profile and the field, BrokenPlugin for a package that does not load.
    """
    profiles = dict(BUILT_IN_PROFILES)
    registry = load_entry_points() if config.profiles else {}
    for index, document in enumerate(config.profiles):
        name = document.get("name")
        if isinstance(name, str) and name in profiles:
            raise InvalidObject(path, f"profiles[{index}].name", f"{name!r:.80} is taken")
        profile = profile_from(_imported(document, path, index), registry)
        profiles[profile.name] = profile
    return MappingProxyType(profiles)


def _imported(document: Mapping[str, object], path: str, index: int) -> Mapping[str, object]:
    """A profile's document; one that names Knative's ConfigMaps is read from them."""
    if _IMPORT not in document:
        return document
    field = f"profiles[{index}].{_IMPORT}"
    files = document[_IMPORT]
    others = sorted(set(document) - {"name", "ties", "rules", _IMPORT})
    if others:
        raise InvalidObject(path, f"profiles[{index}].{others[0]}", f"does not go together with {_IMPORT}")
    if not isinstance(files, Mapping) or "scheduler" not in files or set(files) - {*_IMPORTED, _IGNORE}:
        raise InvalidObject(
            path, field, "must be {scheduler: FILE, descheduler: FILE}; the second may be left out"
        )
    ignore_unknown = files.get(_IGNORE, False)
    if not isinstance(ignore_unknown, bool):
        raise InvalidObject(path, f"{field}.{_IGNORE}", "must be true or false")
    maps = {
        what: _config_map(path, f"{field}.{what}", files.get(what)) for what in _IMPORTED if what in files
    }
    imported = knative_document(
        str(document.get("name") or ""),
        maps["scheduler"],
        maps.get("descheduler"),
        ignore_unknown=ignore_unknown,
    )
    return {**imported, **{key: value for key, value in document.items() if key != _IMPORT}}


def _config_map(path: str, field: str, name: object) -> Mapping[str, object]:
    if not isinstance(name, str) or not name:
        raise InvalidObject(path, field, "must be the name of a file")
    return read_config_map(str(Path(path).parent / name))


def read_config_map(path: str) -> Mapping[str, object]:
    """A ConfigMap's manifest. Raises InvalidObject."""
    document = read_document(path)
    if not isinstance(document, Mapping) or document.get("kind") != "ConfigMap":
        raise InvalidObject(path, "kind", "must be ConfigMap")
    return document
