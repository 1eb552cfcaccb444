"""Loads the profiles of one service: the built-in ones, and those that its configuration file adds.

::

    profiles:
      - name: three-zones    # plugins, see extender.engine.policy.profile_document
        scores: [{name: ZoneSpread, weight: 10}]
      - name: as-before      # Knative's own ConfigMaps; files beside the configuration file
        knativeConfigMaps: {scheduler: config-kafka-scheduler.yaml,
                            descheduler: config-kafka-descheduler.yaml}

A name that is no plugin is an error. With ``ignoreUnknown: true`` beside the two files it is
skipped, as Knative does.

A service uses the profiles that it has read at its start. Installed packages may add plugins
(``extender.config.plugins``).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from extender.config.document import (
    Document,
    InvalidField,
    Stamps,
    open_document,
    read_file,
    stamps_of,
)
from extender.config.model import Config
from extender.config.plugins import load_entry_points
from extender.config.reading import config_of
from extender.engine.policy.knative_configmap import knative_document
from extender.engine.policy.profile import Profile
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.model.errors import InvalidObject

_IMPORT: Final = "knativeConfigMaps"
_IMPORTED: Final = ("scheduler", "descheduler")
_IGNORE: Final = "ignoreUnknown"


@dataclass(frozen=True, slots=True)
class WatchedContent:
    """What is watched of a configuration file. ``files`` are the file and those that it refers to;
    ``imported_digest`` is one of the latter. ``stamps`` are those of ``files`` from before they
    were read: a file that changes during the reading differs from its stamp.
    """

    config: Config
    files: tuple[str, ...]
    imported_digest: str = ""
    stamps: Stamps = ()


class ConfigFile(NamedTuple):
    """A configuration file as it was read, with its profiles."""

    document: Document
    config: Config
    profiles: Mapping[str, Profile]
    watched: WatchedContent


def open_config(path: str) -> ConfigFile:
    """Read a configuration file and its profiles. Raises InvalidObject with the place in the file,
    BrokenPlugin.
    """
    stamps = stamps_of([path])
    document = open_document(path)
    config = config_of(document)
    files = tuple(files_of(config, path))
    stamps += stamps_of(files[1:])
    # Before the profiles: if a file changes in between, a restart is asked for in vain. The other
    # way round, nothing would say that the profiles in force are the old ones.
    watched = WatchedContent(config, files, _digest_of(files[1:]), stamps)
    return ConfigFile(document, config, load_profiles(config, path, document), watched)


def profiles_of(path: str) -> Mapping[str, Profile]:
    """Return the profiles that a pool may name: those of a configuration file, or the built-in ones
    for "". Raises what ``open_config`` raises.
    """
    return open_config(path).profiles if path else BUILT_IN_PROFILES


def load_profiles(config: Config, path: str, file: Document | None = None) -> Mapping[str, Profile]:
    """Return all profiles by name. Relative file names start from the folder of ``path``, the
    configuration file.

    Raises InvalidObject with the profile, the field and its place in ``file``. Raises BrokenPlugin
    for a plugin that does not load.
    """
    profiles = dict(BUILT_IN_PROFILES)
    registry = load_entry_points() if config.profiles else {}
    for index, document in enumerate(config.profiles):
        name = document.get("name")
        try:
            _refuse_taken(name, profiles, path, index)
            profile = profile_from(_imported(document, path, index), registry)
        except InvalidObject as error:
            raise _with_place(error, index, file) from error
        profiles[profile.name] = profile
    return MappingProxyType(profiles)


def _digest_of(imported: Sequence[str]) -> str:
    """Return a digest of the files that profiles are read from. One that cannot be read adds
    nothing: ``load_profiles`` says what is wrong with it.
    """
    digest = sha256()
    for name in imported:
        with suppress(InvalidObject):
            digest.update(sha256(read_file(name)).digest())
    return digest.hexdigest()


def _refuse_taken(name: object, taken: Mapping[str, Profile], path: str, index: int) -> None:
    if isinstance(name, str) and name in taken:
        raise InvalidObject(path, f"profiles[{index}].name", f"{name!r:.80} is taken")


def files_of(config: Config, path: str) -> list[str]:
    """Return the configuration file at ``path`` and the files that its profiles are read from."""
    imported = [document.get(_IMPORT) for document in config.profiles]
    names = [one.get(what) for one in imported if isinstance(one, Mapping) for what in _IMPORTED]
    return [
        path,
        *(str(Path(path).parent / name) for name in names if isinstance(name, str) and name),
    ]


def _with_place(error: InvalidObject, index: int, file: Document | None) -> InvalidObject:
    """Add the place in the file to a profile's error, which names the profile's own field."""
    if file is None or isinstance(error, InvalidField):
        return error
    entry = f"profiles[{index}]"
    if error.subject == file.subject:
        return file.with_place(error)
    return file.with_place(error, f"{entry}.{error.field}" if error.field else entry)


def _imported(document: Mapping[str, object], path: str, index: int) -> Mapping[str, object]:
    """Return a profile's document. A profile that names Knative's ConfigMaps is read from them."""
    if _IMPORT not in document:
        return document
    field = f"profiles[{index}].{_IMPORT}"
    files = document[_IMPORT]
    others = sorted(set(document) - {"name", "ties", "rules", _IMPORT})
    if others:
        raise InvalidObject(
            path, f"profiles[{index}].{others[0]}", f"cannot be combined with {_IMPORT}"
        )
    if (
        not isinstance(files, Mapping)
        or "scheduler" not in files
        or set(files) - {*_IMPORTED, _IGNORE}
    ):
        raise InvalidObject(
            path, field, "must be {scheduler: FILE, descheduler: FILE}; descheduler is optional"
        )
    ignore_unknown = files.get(_IGNORE, False)
    if not isinstance(ignore_unknown, bool):
        raise InvalidObject(path, f"{field}.{_IGNORE}", "must be true or false")
    maps = {
        what: _config_map(path, f"{field}.{what}", files.get(what))
        for what in _IMPORTED
        if what in files
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
    try:
        return read_config_map(str(Path(path).parent / name))
    except InvalidObject as error:
        raise InvalidObject(path, field, str(error)) from error


def read_config_map(path: str) -> Mapping[str, object]:
    """Read a ConfigMap's manifest. Raises InvalidObject."""
    value = open_document(path).value
    if not isinstance(value, Mapping) or value.get("kind") != "ConfigMap":
        raise InvalidObject(path, "kind", "must be ConfigMap")
    return value
