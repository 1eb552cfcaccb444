"""ConfigMaps as places of ``webhook.publication``: ``ca.crt`` of a server whose clients are pods.

A client's pod mounts the ConfigMap of its own namespace, as every pod mounts ``kube-root-ca.crt``
(kube-controller-manager's root-ca-cert-publisher), so it needs no right to read anything. Whoever
installs the manifests makes the ConfigMaps, because a right to create them cannot be narrowed to a
name.

Some clients are no pods, or read the file only when they start. Nobody can see their copies. So an
authority may sign only once it is ``COPIED_WITHIN`` old, too. A copy that is renewed that often
always has the authority that signs. A next authority is made long before it is needed, so this
delays nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509

from extender.kube.api import CONFIGMAPS, Api, Obj, Resource
from webhook.publication import Publication, on_condition
from webhook.x509 import CLOCK_SKEW

COPIED_WITHIN: Final = timedelta(days=60)
"""How old a client's own copy may be."""
KEY: Final = "ca.crt"


class CAConfigMaps(Publication):
    """Keeps these ConfigMaps (namespace, name) right. ``now``: wall-clock time, epoch seconds."""

    def __init__(
        self,
        api: Api,
        names: Sequence[tuple[str, str]],
        *,
        monotonic: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        def old_enough(authority: x509.Certificate) -> bool:
            made_before = datetime.fromtimestamp(now(), UTC) - COPIED_WITHIN - CLOCK_SKEW
            return authority.not_valid_before_utc <= made_before

        places = [_ConfigMap(*each) for each in names]
        super().__init__(api, places, monotonic=monotonic, old_enough=old_enough)


@dataclass(frozen=True, slots=True)
class _ConfigMap:
    """A ``Place``."""

    namespace: str
    name: str
    resource: Resource = CONFIGMAPS
    filled_in: str = KEY

    def ops(self, found: Obj, ca_pem: bytes | None) -> list[Obj]:
        if ca_pem is None or self.bundles(found) == [ca_pem]:
            return []
        value = ca_pem.decode()
        if isinstance(found.get("data"), dict):
            op: Obj = {"op": "add", "path": f"/data/{KEY}", "value": value}
        else:
            op = {"op": "add", "path": "/data", "value": {KEY: value}}
        return on_condition(found, [op])

    def bundles(self, found: Obj) -> list[bytes]:
        data = found.get("data")
        content = data.get(KEY) if isinstance(data, dict) else None
        return [content.encode() if isinstance(content, str) else b""]

    def problem(self, found: Obj, served_pem: bytes, *, ours: bool) -> str:  # noqa: ARG002
        return ""  # what is written is what the certificate was signed by
