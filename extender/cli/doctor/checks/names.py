"""The names of one installation's objects, all derived from its full name as the chart derives them
(``vreplica.fullname`` and ``vreplica.prefix`` in its ``_helpers.tpl``).
"""

from dataclasses import dataclass
from typing import Final

from extender.model.names import COMPONENT

_DEFAULT_PREFIX: Final = "vreplica"


@dataclass(frozen=True, slots=True)
class InstallationNames:
    """What the objects of an installation are called. ``service``: its full name, which its
    Deployment, its first Lease, its webhook registrations and its scheduler have.
    """

    service: str = COMPONENT

    @property
    def is_default(self) -> bool:
        """Whether it has the names that the manifests have without an override."""
        return self.service == COMPONENT

    @property
    def webhook(self) -> str:
        """Of the webhook's Deployment and Service."""
        return self._part("webhook")

    @property
    def upkeep(self) -> str:
        """Of the Deployment that renews the certificate for a webhook that does not do so itself,
        and writes its registration.
        """
        return self._part("webhook-upkeep")

    @property
    def certificate_secret(self) -> str:
        """Of the Secret with the webhook's certificate, unless its Deployment names another."""
        return self._part("webhook-certificate")

    def policy(self, shipped: str) -> str:
        """Of the admission policy that the default installation has as ``shipped``."""
        return self._part(shipped.removeprefix(f"{_DEFAULT_PREFIX}-"))

    def has_lease(self, name: str) -> bool:
        """Whether a Lease of that name is the service's: the first bucket's, or another one's."""
        return name == self.service or name.startswith(f"{self.service}.")

    def _part(self, part: str) -> str:
        return f"{_DEFAULT_PREFIX if self.is_default else self.service}-{part}"


DEFAULT_NAMES: Final = InstallationNames()
