"""The webhook registrations of the cluster: which are those of the installation that is examined,
which belong to others, and for whose pods each of them is called.

A webhook is of this project if ``config check`` takes it for ours. It belongs to the installation
that is examined if its registration has that installation's name, or if it is called at the Service
of that installation's webhook.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from extender.cli.doctor.checks.facts import Facts
from extender.cli.lint.webhook_file import (
    MUTATING,
    NAMESPACE_LABEL,
    VALIDATING,
    catches,
    is_ours,
    takes_new_pods,
)
from extender.model.names import POOL_LABEL
from extender.model.reading import Json, key_of, labels_of, mapping, mappings, text

KINDS: Final = (
    (MUTATING, "mutatingwebhookconfigurations"),
    (VALIDATING, "validatingwebhookconfigurations"),
)
PLURALS: Final = tuple(plural for _, plural in KINDS)
MUTATING_PLURAL: Final = PLURALS[0]


def our_webhooks(facts: Facts) -> Iterator[tuple[str, Json, Json]]:
    """Yield (name of the registration, its object, one webhook in it), of this installation."""
    for name, obj, raw in _webhooks(facts):
        if _is_examined(facts, obj, raw):
            yield name, obj, raw


def _webhooks(facts: Facts) -> Iterator[tuple[str, Json, Json]]:
    """The same of all installations."""
    for kind, plural in KINDS:
        for obj in facts.of(plural).items:
            for raw in mappings(obj, "webhooks"):
                if is_ours(raw):
                    yield f"{kind} {key_of(obj)}", {**obj, "kind": kind}, raw


def _is_examined(facts: Facts, obj: Json, raw: Json) -> bool:
    return key_of(obj) == facts.names.service or _is_called_here(facts, raw)


def _is_called_here(facts: Facts, raw: Json) -> bool:
    service = mapping(raw, "clientConfig", "service")
    called = text(service, "namespace"), text(service, "name")
    return called == (facts.namespace, facts.names.webhook)


@dataclass(frozen=True, slots=True)
class Stamper:
    """A webhook that stamps new adapter pods. ``name``: of its registration, which the chart calls
    as the installation. ``called_at``: namespace and name of its Service, or its URL.
    ``namespaces``: labels of the namespaces that were read.
    """

    name: str
    called_at: str
    raw: Json
    namespaces: Mapping[str, Mapping[str, str]]

    def stamps(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it is called for a new pod with these labels."""
        around = {NAMESPACE_LABEL: namespace, **self.namespaces.get(namespace, {})}
        return catches(self.raw, around, labels)


def stampers(facts: Facts) -> list[Stamper]:
    """The webhooks that stamp new adapter pods, of all installations."""
    namespaces = {
        key_of(one): labels_of(mapping(one, "metadata", "labels"))
        for one in facts.of("namespaces").items
    }
    found = []
    for _, obj, raw in _webhooks(facts):
        if obj["kind"] == MUTATING and takes_new_pods(raw):
            service = mapping(raw, "clientConfig", "service")
            called_at = f"Service {text(service, 'namespace')}/{text(service, 'name')}"
            url = text(raw, "clientConfig", "url")
            found.append(Stamper(key_of(obj), url or called_at, raw, namespaces))
    return found


def labels_of_pods(facts: Facts, pool: Json) -> dict[str, str]:
    """The labels that a new pod of an AdapterPool has, according to its StatefulSet."""
    namespace, name = text(pool, "metadata", "namespace"), text(pool, "metadata", "name")
    stateful_set = facts.of("statefulsets").named(text(pool, "spec", "statefulSet"), namespace)
    template = labels_of(mapping(stateful_set or {}, "spec", "template", "metadata", "labels"))
    return {**template, POOL_LABEL: name}


def elsewhere(facts: Facts) -> str:
    """The command-line options that examine what other installations there are; "" without any."""
    found = dict[str, None]()
    for _, obj, raw in _webhooks(facts):
        name, namespace = key_of(obj), text(raw, "clientConfig", "service", "namespace")
        here = (facts.names.service, facts.namespace)
        if (name, namespace or facts.namespace) != here and not _is_called_here(facts, raw):
            where = f" --namespace {namespace:.63}" if namespace else ""
            found[f"--name {name:.100}{where}"] = None
    return " or ".join(list(found)[:3])
