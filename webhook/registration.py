"""Keeps the caBundle (and for development the URL) in both webhook configurations right, and
remembers how long it has been right.

Whoever installs the manifests makes the configurations. This module only fills in what the
manifests cannot know, and does so again after they were applied anew. It leaves a configuration
alone that cert-manager fills in (an annotation ``cert-manager.io/inject-..``).

Two processes may write at the same time, one of them with an older bundle. So each first reads the
configuration, then the stored bundle, and then patches on the condition that the configuration has
not changed. A process with an older bundle has read the configuration before a newer caBundle was
written, so its patch fails. An older caBundle never replaces a newer one.

An authority may sign once this process has seen it in every caBundle for
``PUBLISHED_BEFORE_USE_S``: by then every API server has it. A restart begins to count anew.
Authorities wait for months, so that costs nothing. A process that can never read the configurations
renews certificates, but keeps the current authority until it ends (row 2 of ``webhook.rotation``).
The log names this problem, and each round counts as failed.
"""

import base64
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from extender.kube.api import (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Api,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    Obj,
    PatchType,
    Resource,
)
from extender.model.names import SCHEDULER_NAME
from webhook.certs import Certificates
from webhook.x509 import certificates_in, fingerprint, is_linked, pem_in_base64

_log: Final = logging.getLogger(__name__)
CONFIGURATION_NAME: Final = SCHEDULER_NAME
ATTEMPTS_MAX: Final = 5
"""How often others may change a configuration between our read and our patch."""
PUBLISHED_BEFORE_USE_S: Final = 600.0
"""An API server watches webhook configurations. It sees a change within milliseconds, or as soon as
a broken watch is back.
"""
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
    if ops:
        version = (configuration.get("metadata") or {}).get("resourceVersion")
        ops.insert(0, {"op": "test", "path": "/metadata/resourceVersion", "value": version})
    return ops


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


class Registration:
    """Keeps both configurations right. ``monotonic``: seconds of a clock that only goes forward."""

    def __init__(
        self,
        api: Api,
        *,
        url: str = "",
        monotonic: Callable[[], float],
    ) -> None:
        self._api = api
        self._url = url
        self._monotonic = monotonic
        self._seen_since: dict[bytes, float] = {}

    def published(self) -> frozenset[bytes]:
        """Return the fingerprints of the authorities that may sign."""
        now = self._monotonic()
        return frozenset(
            each
            for each, since in self._seen_since.items()
            if now - since >= PUBLISHED_BEFORE_USE_S
        )

    async def reconcile(self, certificates: Certificates) -> list[str]:
        """Renew certificates and publish their authorities. Return what is not right, and why.

        Raises ApiError, CertificateError, OSError. After ``ATTEMPTS_MAX`` changes by others, it
        raises the last refusal of a patch: Invalid, Conflict or NotFound.
        """
        attempts = 0
        while True:
            attempts += 1
            # This comes before the bundle is read: see the module docstring.
            try:
                found = {resource: await self._read(resource) for resource in RESOURCES}
            except ApiError:
                # Renewing needs no right to read the registration. But an authority that was
                # published may no longer be, so no change of authority is planned meanwhile.
                await certificates.ensure()
                raise
            self._note(found.values())
            bundle = await certificates.ensure(self.published())
            try:
                for resource, configuration in found.items():
                    ca_pem = None if bundle is None else bundle.ca_pem
                    found[resource] = await self._write(resource, configuration, ca_pem)
            except (Invalid, Conflict, NotFound):
                if attempts == ATTEMPTS_MAX:
                    raise
            else:
                self._note(found.values())
                return self._problems(found, certificates, ours=bundle is not None)

    async def _read(self, resource: Resource) -> Obj:
        """Return {} if there is none."""
        try:
            return await self._api.get(resource, "", CONFIGURATION_NAME)
        except NotFound:
            return {}

    async def _write(self, resource: Resource, configuration: Obj, ca_pem: bytes | None) -> Obj:
        ops = registration_ops(configuration, ca_pem, self._url)
        if not ops:
            return configuration
        written = await self._api.patch(
            resource, "", CONFIGURATION_NAME, ops, patch_type=PatchType.JSON
        )
        what = "caBundle and url" if self._url else "caBundle"
        _log.info("%s %s: %s written", resource.kind, CONFIGURATION_NAME, what)
        return written

    def _note(self, configurations: Collection[Obj]) -> None:
        """Begin to count for authorities that are new in every caBundle. Forget those that are
        missing in any.
        """
        published = [
            {fingerprint(each) for each in certificates_in(pem)}
            for configuration in configurations
            for pem in ca_bundles(configuration)
        ]
        everywhere = set.intersection(*published) if published else set()
        now = self._monotonic()
        self._seen_since = {each: self._seen_since.get(each, now) for each in everywhere}

    def _problems(
        self, found: Mapping[Resource, Obj], certificates: Certificates, *, ours: bool
    ) -> list[str]:
        missing = [resource.kind for resource, configuration in found.items() if not configuration]
        problems = (
            [f"no {' and no '.join(missing)} {CONFIGURATION_NAME} yet: apply the manifests"]
            if missing
            else []
        )
        for resource, configuration in found.items():
            if problem := _problem(configuration, certificates.served_pem, ours=ours):
                problems.append(f"{resource.kind} {CONFIGURATION_NAME}: {problem}")
        return problems


def _problem(configuration: Obj, served_pem: bytes, *, ours: bool) -> str:
    """Return why an API server would refuse the served certificate; "" if it would not."""
    if not configuration:
        return ""
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
