"""The forms of a problem with a field, as k8s.io/apimachinery ``util/validation/field`` writes
them.
"""

from typing import Final

import orjson

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"
NAME_PART: Final = "name part must consist of alphanumeric characters"


def shown(value: object) -> str:
    """Return a value as JSON."""
    return orjson.dumps(value).decode()


def invalid(path: str, value: object, why: str) -> str:
    """field.Invalid."""
    return f"{path}: Invalid value: {shown(value)}: {why}"


def required(path: str, why: str = "") -> str:
    """field.Required."""
    return f"{path}: Required value" + (f": {why}" if why else "")


def forbidden(path: str, why: str) -> str:
    """field.Forbidden."""
    return f"{path}: Forbidden: {why}"


def duplicate(path: str, value: object) -> str:
    """field.Duplicate."""
    return f"{path}: Duplicate value: {shown(value)}"


def unsupported(path: str, value: object, *supported: str) -> str:
    """field.NotSupported."""
    return f"{path}: Unsupported value: {shown(value)}: supported values: " + ", ".join(
        map(shown, supported)
    )
