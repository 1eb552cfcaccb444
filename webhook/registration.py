"""Keeps the caBundle (and for development the URL) in both webhook configurations right.

The configurations are made by whoever installs the manifests; we only ever fill in what they cannot know. Each patch
tests that the list of webhooks is still in the order that we read, so that it can never give one webhook the other's
address; if it is not, we read again. Installing the manifests anew may take the caBundle out, hence the repetition.
"""

import base64
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from extender.core.names import SCHEDULER_NAME
from extender.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Api, Invalid, NotFound, Obj, PatchType

_log: Final = logging.getLogger(__name__)
CONFIGURATION_NAME: Final = SCHEDULER_NAME
ATTEMPTS_MAX: Final = 5
"""Times that somebody else may change a configuration between our read and our patch."""


def registration_ops(configuration: Mapping[str, Any], ca_pem: bytes, url: str) -> list[Obj]:
    """The JSON patch that a webhook configuration needs; empty if it is right.

    ``url`` "" leaves the address alone; else (``https://host:port``) every webhook is called at that address and the
    path of the service or URL that it has.
    """
    ca_bundle = base64.b64encode(ca_pem).decode()
    ops: list[Obj] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        present = webhook.get("clientConfig") or {}
        wanted: Obj = {**present, "caBundle": ca_bundle}
        if url:
            wanted = {"url": url.rstrip("/") + _path_of(present), "caBundle": ca_bundle}
        if wanted != present:
            at = f"/webhooks/{index}"
            ops.append({"op": "test", "path": f"{at}/name", "value": webhook.get("name")})
            ops.append({"op": "add", "path": f"{at}/clientConfig", "value": wanted})
    return ops


def _path_of(client_config: Mapping[str, Any]) -> str:
    service = client_config.get("service")
    if isinstance(service, Mapping):
        return str(service.get("path") or "")
    return urlsplit(str(client_config.get("url") or "")).path


async def register(api: Api, ca_pem: bytes, *, url: str = "", name: str = CONFIGURATION_NAME) -> list[str]:
    """Patch both configurations where they need it. The reply names the kinds that do not exist (yet).

    Raises ApiError; Invalid after ``ATTEMPTS_MAX`` changes by somebody else.
    """
    missing = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                ops = registration_ops(await api.get(resource, "", name), ca_pem, url)
                if ops:
                    await api.patch(resource, "", name, ops, patch_type=PatchType.JSON)
                    _log.info("%s %s: caBundle%s written", resource.kind, name, " and url" if url else "")
            except NotFound:
                missing.append(resource.kind)
            except Invalid:
                if attempt == ATTEMPTS_MAX:
                    raise
                continue
            break
    return missing
