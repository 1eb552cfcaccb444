"""The webhook's side of TLS: nothing older than 1.2."""

import asyncio
import ssl
import time
from pathlib import Path

import pytest

from extender.kube.serving.tls import server_context
from tests.service.authority import only_old_tls
from webhook import certs
from webhook.certs import CertificateManager
from webhook.stores import DirectoryStore


@pytest.mark.parametrize("refuses", [False, True])
async def test_tls_1_1_is_refused(tmp_path: Path, refuses: bool, monkeypatch: pytest.MonkeyPatch):
    """The control shows that the client can: it is served where the minimum is lowered."""
    manager = CertificateManager(DirectoryStore(tmp_path / "certs"), ("localhost",), now=time.time)
    if not refuses:
        monkeypatch.setattr(certs, "server_context", lambda: only_old_tls(server_context()))
    bundle = await manager.ensure()
    context = manager.context if refuses else only_old_tls(manager.context)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    client = only_old_tls(ssl.create_default_context(cadata=bundle.ca_pem.decode()))
    connecting = asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
    if refuses:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connecting
    else:
        _, writer = await connecting
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.1"
        writer.close()
    server.close()
    await server.wait_closed()
