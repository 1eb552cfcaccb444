"""What the checks look at: objects as the API server has them, and for each kind why it could not
be read, if so.

A kind that may not be listed is not an empty one: ``Listed.problem`` says why, and every check that
needs it answers ``unknown`` in place of a guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from extender.model.names import OWN_NAMESPACE
from extender.model.reading import Json, text

SERVICE: Final = "vreplica-scheduler"
WEBHOOK: Final = "vreplica-webhook"
UPKEEP: Final = "vreplica-webhook-upkeep"
"""Renews the certificate of a webhook that does not do so itself, and writes its registration."""
CERTIFICATE_SECRET: Final = "vreplica-webhook-certificate"


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects of one kind. ``problem``: why there are none to look at; ``truncated``: there are
    more than were read.
    """

    items: tuple[Json, ...] = ()
    problem: str = ""
    truncated: bool = False

    def named(self, name: str, namespace: str = "") -> Json | None:
        """The object of that name; ``namespace`` "" for a kind without."""
        for item in self.items:
            if (
                text(item, "metadata", "name") == name
                and text(item, "metadata", "namespace") == namespace
            ):
                return item
        return None


NOT_SERVED: Final = "is not served by this API server"
"""The problem of a kind that is no matter of rights."""
NOT_READ: Final = Listed(problem="was not read")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a server shows: ``pem``, or why it could not be seen."""

    pem: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of the service, asked over HTTP. ``problem``: why there is no answer."""

    url: str
    ready: str = ""
    """Body of /readyz."""
    state: Json = field(default_factory=lambda: MappingProxyType({}))
    """Of /state.json."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one examination. ``listed``: by plural. ``now_s``: epoch seconds of our own
    clock.
    """

    now_s: float
    server: str = ""
    """Address of the API server."""
    namespace: str = OWN_NAMESPACE
    """Where the service and the webhook run."""
    version: Json | None = None
    """/version of the API server."""
    certificate_secret: tuple[str, str] = (OWN_NAMESPACE, CERTIFICATE_SECRET)
    """Namespace and name of the Secret that the webhook serves from."""
    listed: Mapping[str, Listed] = field(default_factory=lambda: MappingProxyType({}))
    again: Mapping[str, Listed] = field(default_factory=lambda: MappingProxyType({}))
    """Pods and vpods once more, a moment later: what differs both times is no write under way."""
    certificates: Mapping[str, Certificate] = field(default_factory=lambda: MappingProxyType({}))
    """What the servers at these URLs of webhook registrations show."""
    crds_shipped: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    """Our own CustomResourceDefinitions, by name."""
    policies_shipped: tuple[str, ...] = ()
    """Names of our ValidatingAdmissionPolicies."""
    replica: Replica | None = None

    def of(self, plural: str) -> Listed:
        """The objects of a kind."""
        return self.listed.get(plural, NOT_READ)


def age_s(stamp: str, now_s: float) -> float | None:
    """Seconds since an RFC 3339 time; None for what is none."""
    try:
        return now_s - datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
