"""How clients come to know the authorities: ``ca.crt`` of the stored bundle, in every object where
they look for it.

    what is served            places                                     read by
    the webhook               both webhook configurations, caBundle      API servers
    the listener for          ConfigMaps in the callers' namespaces,     the callers' pods
    controllers               key ca.crt

Two processes may write at the same time, one of them with an older bundle. So each first reads the
objects, then the stored bundle, and then patches on the condition that the object has not changed.
A process with an older bundle has read the object before a newer bundle was written into it, so its
patch fails. An older bundle never replaces a newer one.

An authority may sign once this process has seen it everywhere for ``PUBLISHED_BEFORE_USE_S``. A
restart begins to count anew. Authorities wait for months, so that costs nothing. While an object
cannot be read, no change of authority is planned, as what was published may no longer be.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from cryptography import x509

from extender.kube.api import (
    Api,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Obj,
    PatchType,
    Resource,
)
from webhook.certs import Certificates
from webhook.x509 import certificates_in, fingerprint

_log: Final = logging.getLogger(__name__)
ATTEMPTS_MAX: Final = 5
"""How often others may change an object between our read and our patch."""
PUBLISHED_BEFORE_USE_S: Final = 600.0
"""An API server watches webhook configurations. It sees a change within milliseconds, or as soon as
a broken watch is back. A kubelet brings a ConfigMap's change into a mounted volume within its sync
period and the delay of its cache, some two minutes (Kubernetes, "Mounted ConfigMaps are updated
automatically").
"""


class Place(Protocol):
    """An object that the authorities are published in. Somebody else creates it."""

    @property
    def resource(self) -> Resource:
        """Its kind."""
        ...

    @property
    def namespace(self) -> str:
        """Empty if the kind has none."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def filled_in(self) -> str:
        """What ``ops`` write, for the log."""
        ...

    def ops(self, found: Obj, ca_pem: bytes | None) -> list[Obj]:
        """Return the JSON patch that the object needs, see ``on_condition``; empty if it is right.
        ``ca_pem`` is None if somebody else publishes the authorities.
        """
        ...

    def bundles(self, found: Obj) -> list[bytes]:
        """Return each list of authorities in the object, PEM; b"" if it cannot be read."""
        ...

    def problem(self, found: Obj, served_pem: bytes, *, ours: bool) -> str:
        """Return why clients would refuse the served certificate; "" if they would not. ``ours``:
        this process publishes the authorities.
        """
        ...


def on_condition(found: Mapping[str, object], ops: list[Obj]) -> list[Obj]:
    """Return ``ops`` (a JSON patch) with the condition that the object is still as it was read."""
    if not ops:
        return []
    metadata = found.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *ops]


class Publication:
    """Keeps all ``places`` right. ``monotonic``: seconds of a clock that only goes forward.
    ``old_enough``: whether an authority that is in all places may sign.
    """

    def __init__(
        self,
        api: Api,
        places: Sequence[Place],
        *,
        monotonic: Callable[[], float],
        old_enough: Callable[[x509.Certificate], bool] = lambda _: True,
    ) -> None:
        self._api = api
        self._places = places
        self._monotonic = monotonic
        self._old_enough = old_enough
        self._seen_since: dict[x509.Certificate, float] = {}

    def published(self) -> frozenset[bytes]:
        """Return the fingerprints of the authorities that may sign."""
        now = self._monotonic()
        return frozenset(
            fingerprint(each)
            for each, since in self._seen_since.items()
            if now - since >= PUBLISHED_BEFORE_USE_S and self._old_enough(each)
        )

    async def reconcile(self, certificates: Certificates) -> list[str]:
        """Renew certificates and publish their authorities. Return what is not right, and why.

        A place that we have no right to counts as a problem, and the others are kept right. Raises
        ApiError, CertificateError, OSError. After ``ATTEMPTS_MAX`` changes by others, it raises the
        last refusal of a patch: Invalid, Conflict or NotFound.
        """
        attempts = 0
        while True:
            attempts += 1
            # This comes before the bundle is read: see the module docstring.
            try:
                found, problems = await self._read()
            except ApiError:
                # Renewing needs no right to read the places.
                await certificates.ensure()
                raise
            if problems:
                bundle = await certificates.ensure()
            else:
                self._note(found)
                bundle = await certificates.ensure(self.published())
            ca_pem = None if bundle is None else bundle.ca_pem
            refusal = await self._write(found, ca_pem, problems)
            if refusal is None:
                break
            if attempts == ATTEMPTS_MAX:
                raise refusal
        if len(found) == len(self._places):
            self._note(found)
        for place, obj in found.items():
            if not obj:
                problems.append(f"no {_named(place)} yet: apply the manifests")
            elif said := place.problem(obj, certificates.served_pem, ours=bundle is not None):
                problems.append(f"{_named(place)}: {said}")
        return problems

    async def _read(self) -> tuple[dict[Place, Obj], list[str]]:
        """Return the objects, {} for one that does not exist; and those that we may not read."""
        found: dict[Place, Obj] = {}
        problems = []
        for place in self._places:
            try:
                found[place] = await self._api.get(place.resource, place.namespace, place.name)
            except NotFound:
                found[place] = {}
            except Forbidden as error:
                problems.append(f"{_named(place)}: {error}")
        return found, problems

    async def _write(
        self, found: dict[Place, Obj], ca_pem: bytes | None, problems: list[str]
    ) -> ApiError | None:
        """Patch what is not right, and note the results in ``found``. Return the last refusal that
        another writer may be the reason of.
        """
        refusal: ApiError | None = None
        for place, obj in found.items():
            ops = place.ops(obj, ca_pem) if obj else []
            if not ops:
                continue
            try:
                found[place] = await self._api.patch(
                    place.resource, place.namespace, place.name, ops, patch_type=PatchType.JSON
                )
            except (Invalid, Conflict, NotFound) as error:
                refusal = error
            except Forbidden as error:
                problems.append(f"{_named(place)}: {error}")
            else:
                _log.info("%s: %s written", _named(place), place.filled_in)
        return refusal

    def _note(self, found: Mapping[Place, Obj]) -> None:
        """Begin to count for authorities that are new in all places. Forget those that are missing
        in any.
        """
        published: Collection[set[x509.Certificate]] = [
            set(certificates_in(pem)) for place, obj in found.items() for pem in place.bundles(obj)
        ]
        everywhere = set.intersection(*published) if published else set()
        now = self._monotonic()
        self._seen_since = {each: self._seen_since.get(each, now) for each in everywhere}


def _named(place: Place) -> str:
    prefix = f"{place.namespace}/" if place.namespace else ""
    return f"{place.resource.kind} {prefix}{place.name}"
