"""The webhook configurations as places of ``webhook.publication``: their caBundle, and for
development the URL.

Whoever installs the manifests makes the configurations. This module only fills in what the
manifests cannot know, and does so again after they were applied anew. It leaves a configuration
alone that cert-manager fills in (an annotation ``cert-manager.io/inject-..``).

A process that can never read the configurations renews certificates, but keeps the current
authority until it ends (row 2 of ``webhook.rotation``). The log names this problem, and each round
counts as failed.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from extender.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Api, Obj, Resource
from extender.model.names import SCHEDULER_NAME
from webhook.publication import Publication, on_condition
from webhook.x509 import is_linked, pem_in_base64

CONFIGURATION_NAME: Final = SCHEDULER_NAME
"""Of both configurations, unless an installation has a name of its own."""
INJECTOR_PREFIX: Final = "cert-manager.io/inject-"
"""Prefix of the annotations that tell cert-manager to fill in the caBundle."""
RESOURCES: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


def registration_ops(configuration: Mapping[str, Any], ca_pem: bytes | None, url: str) -> list[Obj]:
    """Return the JSON patch that a webhook configuration needs; empty if it is right.

    If ``ca_pem`` is None, or an injector's annotation is present, caBundles stay as they are. If
    ``url`` (``https://host:port``) is not empty, every webhook gets that address with the path of
    its present service or URL.
    """
    ops: list[Obj] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        present = webhook.get("clientConfig") or {}
        wanted: Obj = dict(present)
        if url:
            wanted = {"url": url.rstrip("/") + _path_of(present)}
            wanted |= {"caBundle": present["caBundle"]} if "caBundle" in present else {}
        if ca_pem is not None and not injector_of(configuration):
            wanted["caBundle"] = base64.b64encode(ca_pem).decode()
        if wanted != present:
            ops.append({"op": "add", "path": f"/webhooks/{index}/clientConfig", "value": wanted})
    return on_condition(configuration, ops)


def injector_of(configuration: Mapping[str, Any]) -> str:
    """Return the annotation by which cert-manager fills in the caBundle; "" if there is none."""
    annotations = (configuration.get("metadata") or {}).get("annotations") or {}
    return next((str(key) for key in annotations if str(key).startswith(INJECTOR_PREFIX)), "")


def ca_bundles(configuration: Mapping[str, Any]) -> list[bytes]:
    """Return the caBundle of every webhook, PEM; b"" if it is absent or not base64."""
    return [
        pem_in_base64((webhook.get("clientConfig") or {}).get("caBundle"))
        for webhook in configuration.get("webhooks") or ()
    ]


class Registration(Publication):
    """Keeps both configurations right. If ``url`` is not empty, the API server calls it."""

    def __init__(
        self,
        api: Api,
        *,
        url: str = "",
        name: str = CONFIGURATION_NAME,
        monotonic: Callable[[], float],
    ) -> None:
        places = [_Configuration(resource, url, name) for resource in RESOURCES]
        super().__init__(api, places, monotonic=monotonic)


@dataclass(frozen=True, slots=True)
class _Configuration:
    """One of the two configurations, as a ``Place``."""

    resource: Resource
    url: str
    name: str
    namespace: str = ""

    @property
    def filled_in(self) -> str:
        return "caBundle and url" if self.url else "caBundle"

    def ops(self, found: Obj, ca_pem: bytes | None) -> list[Obj]:
        return registration_ops(found, ca_pem, self.url)

    def bundles(self, found: Obj) -> list[bytes]:
        return ca_bundles(found)

    def problem(self, found: Obj, served_pem: bytes, *, ours: bool) -> str:
        return _problem(found, served_pem, ours=ours)


def _problem(configuration: Obj, served_pem: bytes, *, ours: bool) -> str:
    """Return why an API server would refuse the served certificate; "" if it would not."""
    injector = injector_of(configuration)
    if ours and injector:
        return (
            f"the annotation {injector} leaves its caBundle to cert-manager, but this webhook "
            f"makes its own certificate: "
            "remove the annotation, or serve cert-manager's with --tls-cert-file and "
            "--tls-private-key-file"
        )
    bundles = ca_bundles(configuration)
    if injector and not all(bundles):
        return f"cert-manager has not filled in its caBundle yet (annotation {injector})"
    if not all(is_linked(served_pem, bundle) for bundle in bundles if bundle):
        return "its caBundle does not hold the authority of the certificate that is served"
    return ""


def _path_of(client_config: Mapping[str, Any]) -> str:
    service = client_config.get("service")
    if isinstance(service, Mapping):
        return str(service.get("path") or "")
    return urlsplit(str(client_config.get("url") or "")).path
