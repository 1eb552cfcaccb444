"""Reads the body of ``POST /v1/plan``, and the options of ``vreplica plan``, into a ``Change``.

.. code-block:: text

    {"pool": "ns/name", "drain": ["pod/x", "node/y", "zone/z"], "fail": ["node/w"],
     "set": {"slotsPerPod": 22}, "profile": "ha",
     "addVPods": [{"namespace": "t", "name": "a", "vreplicas": 8, "slotsPerVReplica": 1}],
     "addTenants": [{"name": "team-x", "slots": 40}],
     "autoscale": true, "compact": false}

Every field is optional. Without ``pool``, the request is about all pools. An unknown field is an
error that lists the known ones.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from extender.engine.scaling.size import POOL_PODS_MAX
from extender.model.errors import InvalidObject
from extender.model.objects import VPod
from extender.model.reading import COUNT_MAX, Json, count
from extender.model.safe_repr import safe_repr
from extender.whatif.new_tenants import NewTenant
from extender.whatif.settings import SETTINGS
from extender.whatif.targets import Target, TargetKind
from extender.whatif.whatif import Change

FIELDS: Final = (
    "pool",
    "drain",
    "fail",
    "set",
    "profile",
    "addVPods",
    "addTenants",
    "autoscale",
    "compact",
)
TARGETS_MAX: Final = 1_000
VPODS_ADDED_MAX: Final = 10_000
TENANTS_ADDED_MAX: Final = 100
VREPLICAS_ADDED_MAX: Final = 100_000
"""In all. A profile with plugins places them one by one, and cannot be interrupted."""
SLOTS_PER_POD_MAX: Final = 100_000
"""Likewise: as many may find room on a pod at once."""
SETTINGS_MAX: Final = {
    "minPods": POOL_PODS_MAX,
    "maxPods": POOL_PODS_MAX,
    "slotsPerPod": SLOTS_PER_POD_MAX,
}
"""Sizing a pool counts its pods one by one, and cannot be interrupted either."""
_VPOD_FIELDS: Final = ("namespace", "name", "vreplicas", "slotsPerVReplica")
_TENANT_FIELDS: Final = ("name", "slots")
_TENANT: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A value of a label, which the name of a namespace is too."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SUBJECT: Final = "plan"


def change_from(document: Json, *, pool: str) -> Change:
    """Read a request. ``pool`` is the key of the pool that added vpods and tenants ask for, "" if
    it is not exactly one. Raises InvalidObject.
    """
    _only(document, "", FIELDS)
    added, tenants = _vpods(document, pool), _tenants(document, pool)
    vreplicas = sum(vpod.vreplicas for vpod in added) + sum(one.slots for one in tenants)
    if vreplicas > VREPLICAS_ADDED_MAX:
        text = f"must ask for at most {VREPLICAS_ADDED_MAX} vreplicas in all, not {vreplicas}"
        raise InvalidObject(_SUBJECT, "addVPods" if added else "addTenants", text)
    profile = document.get("profile")
    if profile is not None and not isinstance(profile, str):
        raise InvalidObject(_SUBJECT, "profile", f"must be a text, not {safe_repr(profile)}")
    return Change(
        drain=tuple(
            target_from(one, f"drain[{i}]")
            for i, one in enumerate(_list(document, "drain", TARGETS_MAX))
        ),
        fail=tuple(
            target_from(one, f"fail[{i}]")
            for i, one in enumerate(_list(document, "fail", TARGETS_MAX))
        ),
        settings=settings_from(document.get("set")),
        profile=profile or "",
        add=added,
        tenants=tenants,
        autoscale=_flag(document, "autoscale"),
        compact=_flag(document, "compact"),
    )


def pool_from(document: Json) -> str:
    """The pool that a request is about, "" for all. Raises InvalidObject."""
    pool = document.get("pool")
    if pool is None or pool == "":
        return ""
    if not isinstance(pool, str) or pool.count("/") != 1:
        raise InvalidObject(_SUBJECT, "pool", f"must be NAMESPACE/NAME, not {safe_repr(pool)}")
    return pool


def target_from(value: object, where: str) -> Target:
    """Read ``pod/x``, ``pod/namespace/x``, ``node/y``, ``zone/z`` or a bare name. Raises
    InvalidObject.
    """
    if isinstance(value, str) and value.isprintable():
        kind, slash, name = value.partition("/")
        if slash and name and kind in list(TargetKind):
            return Target(TargetKind(kind), name)
        if not slash and value:
            return Target(None, value)
    raise InvalidObject(
        _SUBJECT, where, f"must be pod/NAME, node/NAME or zone/NAME, not {safe_repr(value)}"
    )


def settings_from(raw: object) -> Mapping[str, int]:
    """Read fields of AdapterPool's spec; return their values. Raises
    InvalidObject.
    """
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidObject(_SUBJECT, "set", f"must be an object, not {safe_repr(raw)}")
    _only(raw, "set", tuple(SETTINGS))
    return {key: _setting(key, value) for key, value in raw.items()}


def _setting(key: str, value: object) -> int:
    number = count(value, _SUBJECT, f"set.{key}", minimum=SETTINGS[key][1])
    most = SETTINGS_MAX.get(key, COUNT_MAX)
    if number > most:
        raise InvalidObject(_SUBJECT, f"set.{key}", f"must be at most {most}, not {number}")
    return number


def _only(raw: Mapping[object, object] | Json, where: str, known: Sequence[str]) -> None:
    for key in raw:
        if key not in known:
            name = f"{where}.{key}" if where else f"{key}"
            raise InvalidObject(_SUBJECT, name[:100], f"is not known (known: {', '.join(known)})")


def _list(document: Json, name: str, most: int) -> Sequence[object]:
    raw = document.get(name)
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > most:
        raise InvalidObject(_SUBJECT, name, f"must be a list of at most {most}")
    return raw


def _flag(document: Json, name: str) -> bool:
    raw = document.get(name, False)
    if not isinstance(raw, bool):
        raise InvalidObject(_SUBJECT, name, f"must be true or false, not {safe_repr(raw)}")
    return raw


def _added(document: Json, name: str, most: int, pool: str) -> Sequence[object]:
    """What is added to ``pool``. Raises InvalidObject if it is not known which pool that is."""
    listed = _list(document, name, most)
    if listed and not pool:
        raise InvalidObject(
            _SUBJECT, "pool", f"is required with {name} where there is not exactly one pool"
        )
    return listed


def _vpods(document: Json, pool: str) -> tuple[VPod, ...]:
    listed = _added(document, "addVPods", VPODS_ADDED_MAX, pool)
    return tuple(_vpod(one, pool, f"addVPods[{i}]") for i, one in enumerate(listed))


def _tenants(document: Json, pool: str) -> tuple[NewTenant, ...]:
    listed = _added(document, "addTenants", TENANTS_ADDED_MAX, pool)
    tenants: dict[str, NewTenant] = {}
    for index, raw in enumerate(listed):
        where = f"addTenants[{index}]"
        tenant = _tenant(raw, pool, where)
        if tenant.name in tenants:
            raise InvalidObject(_SUBJECT, f"{where}.name", f"{tenant.name} is there twice")
        tenants[tenant.name] = tenant
    return tuple(tenants.values())


def _tenant(raw: object, pool: str, where: str) -> NewTenant:
    if not isinstance(raw, Mapping):
        raise InvalidObject(_SUBJECT, where, f"must be an object, not {safe_repr(raw)}")
    _only(raw, where, _TENANT_FIELDS)
    name = raw.get("name")
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        text = f"must be a namespace or a value of a label, not {safe_repr(name)}"
        raise InvalidObject(_SUBJECT, f"{where}.name", text)
    slots = count(raw.get("slots"), _SUBJECT, f"{where}.slots", minimum=1)
    return NewTenant(name, pool, slots)


def _vpod(raw: object, pool: str, where: str) -> VPod:
    if not isinstance(raw, Mapping):
        raise InvalidObject(_SUBJECT, where, f"must be an object, not {safe_repr(raw)}")
    _only(raw, where, _VPOD_FIELDS)
    return VPod(
        namespace=_name_in(raw, "namespace", where),
        name=_name_in(raw, "name", where),
        pool=pool,
        generation=1,
        vreplicas=count(raw.get("vreplicas"), _SUBJECT, f"{where}.vreplicas"),
        weight=count(
            raw.get("slotsPerVReplica"), _SUBJECT, f"{where}.slotsPerVReplica", default=1, minimum=1
        ),
    )


def _name_in(raw: Mapping[object, object], field: str, where: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidObject(_SUBJECT, f"{where}.{field}", f"must be a name, not {safe_repr(value)}")
    return value
