"""``SystemWithCallers``: an installation with the listener for controllers."""

import ssl
from pathlib import Path
from typing import Final

import yaml

from tests.e2e.backend import Backend
from tests.e2e.objects import write_json
from tests.e2e.processes import free_port
from tests.e2e.replica import Replica
from tests.e2e.scenario import LOOPBACK, System
from tests.service.authority import Authority, client_context

CALLER: Final = "controllers/caller"
"""The ServiceAccount that may call."""


class SystemWithCallers(System):
    """As ``System``; its service listens for ``CALLER``, too."""

    def __init__(self, backend: Backend, directory: Path) -> None:
        super().__init__(backend, directory)
        self._authority = Authority(directory, "schedule-ca")
        self.schedule_url = f"https://{LOOPBACK}:{free_port()}"
        self.schedule_tls: ssl.SSLContext = client_context(self._authority, None)

    async def replica(self, url: str = "") -> Replica:
        """See System."""
        plain = await super().replica(url)
        config = yaml.safe_load(plain.config.read_text())
        certificate, key = self._authority.issue("schedule-serving")
        config["schedule"] = {
            "host": LOOPBACK,
            "port": int(self.schedule_url.rpartition(":")[2]),
            "allowedServiceAccounts": [CALLER],
            "tls": {"certFile": certificate, "keyFile": key},
        }
        return Replica(write_json(plain.config, config), plain.url)
