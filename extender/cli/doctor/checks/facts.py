"""The facts that the checks look at: objects from the API server, and for each kind why it could
not be read, if so.

A kind that the user may not list is not taken for an empty one. ``Listed.problem`` says why it
could not be read, and every check that needs the kind then answers ``unknown``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from extender.cli.doctor.checks.names import DEFAULT_NAMES, InstallationNames
from extender.model.decode import pod_from, vpod_from
from extender.model.errors import InvalidObject
from extender.model.names import OWN_NAMESPACE, SCHEDULER_NAME
from extender.model.objects import AdapterPod, VPod
from extender.model.reading import Json, text

NAMES: Final = {"pods": "adapter pods", "adapterpools": "AdapterPools"}
"""Plurals of kinds as people say them, where that differs."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects of one kind. ``problem``: why they could not be read. ``truncated``: there are more
    than were read.
    """

    items: tuple[Json, ...] = ()
    problem: str = ""
    truncated: bool = False

    def named(self, name: str, namespace: str = "") -> Json | None:
        """The object of that name. ``namespace`` is "" for a cluster-scoped kind."""
        for item in self.items:
            if (
                text(item, "metadata", "name") == name
                and text(item, "metadata", "namespace") == namespace
            ):
                return item
        return None

    def pods(self) -> list[AdapterPod]:
        """The items as adapter pods, in order."""
        return [pod_from(item) for item in self.items]

    def vpods(self, problems: list[str] | None = None) -> list[VPod]:
        """The items that can be read as vpods. Of the others, ``problems`` gets what is wrong."""
        found = []
        for item in self.items:
            try:
                found.append(vpod_from(item))
            except InvalidObject as error:
                if problems is not None:
                    problems.append(str(error)[:200])
        return found


NOT_SERVED: Final = "is not served by this API server"
"""The problem of a kind that does not exist on the server; other problems are about rights."""
NOT_READ: Final = Listed(problem="was not read")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate that a server presents, as ``pem``, or why it could not be read."""

    pem: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of the service, asked over HTTP. ``ready``: body of /readyz. ``state``: body of
    /state.json. ``problem``: why it did not answer.
    """

    url: str
    ready: str = ""
    state: Json = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MayEvict:
    """Whether the service's account may evict pods in a namespace. ``allowed`` is None if that is
    not known; ``problem`` then says why.
    """

    allowed: bool | None = None
    problem: str = ""


NOT_ASKED: Final = MayEvict(problem="was not asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one examination. ``listed``: by plural. ``now_s``: epoch seconds of the local
    clock.
    """

    now_s: float
    server: str = ""
    """Address of the API server."""
    namespace: str = OWN_NAMESPACE
    """Where the service and the webhook run."""
    names: InstallationNames = DEFAULT_NAMES
    """Of the objects of the installation that is examined."""
    version: Json | None = None
    """The API server's /version."""
    certificate_secret: tuple[str, str] = (OWN_NAMESPACE, DEFAULT_NAMES.certificate_secret)
    """Namespace and name of the Secret with the webhook's certificate."""
    scheduler_name: str = SCHEDULER_NAME
    """The scheduler that the webhook assigns adapter pods to."""
    service_account: str = ""
    """What the service calls the API server as: ``namespace/name``; "" if that is not known."""
    listed: Mapping[str, Listed] = field(default_factory=lambda: MappingProxyType({}))
    again: Mapping[str, Listed] = field(default_factory=lambda: MappingProxyType({}))
    """Pods and vpods, read again a moment later. A difference that is in both is not a write in
    progress.
    """
    certificates: Mapping[str, Certificate] = field(default_factory=lambda: MappingProxyType({}))
    """URL in a webhook registration -> the certificate of the server there."""
    crds_shipped: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    """The CustomResourceDefinitions that ship with this version, by name."""
    policies_shipped: tuple[str, ...] = ()
    """Names of the ValidatingAdmissionPolicies that ship with this version."""
    may_evict: Mapping[str, MayEvict] = field(default_factory=lambda: MappingProxyType({}))
    """By namespace, for those with pools that have opted in to descheduling."""
    replica: Replica | None = None

    def of(self, plural: str) -> Listed:
        """The objects of a kind."""
        return self.listed.get(plural, NOT_READ)

    def cut(self, *plurals: str) -> list[str]:
        """Says of which of these kinds there are more objects than were read; empty for none."""
        cut = [plural for plural in plurals if self.of(plural).truncated]
        return [f"not all {' and '.join(cut)} were read"] if cut else []

    def none_of(self, *plurals: str) -> str:
        """Says that there are no objects of these kinds; "" if there are some."""
        if any(self.of(plural).items for plural in plurals):
            return ""
        return " and ".join(f"no {NAMES.get(plural, plural)}" for plural in plurals)


def age_s(stamp: str, now_s: float) -> float | None:
    """Seconds since an RFC 3339 time; None if ``stamp`` is not one."""
    try:
        return now_s - datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
