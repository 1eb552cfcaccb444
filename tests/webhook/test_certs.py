import asyncio
import base64
import ssl
import stat
import time
from collections.abc import Callable
from typing import Any

import pytest

from extender.kube.api import SECRETS, Forbidden, OutcomeUnknown
from extender.kube.serving.tls import CertificateFiles
from tests.webhook.builders import ObjectsApi
from webhook.certs import (
    RACES_MAX,
    CertificateError,
    CertificateManager,
    FileCertificates,
    StoredCertificates,
)
from webhook.rotation import Bundle
from webhook.stores import CertificateStore, DirectoryStore, SecretStore, Stored
from webhook.x509 import PEM_BYTES_MAX

NOW = 1_800_000_000.0
DAY = 86_400.0
HOSTS = ("localhost",)


def manager(store: CertificateStore, now: Callable[[], float] = lambda: NOW) -> CertificateManager:
    return CertificateManager(store, HOSTS, now=now)


def secret_store(api: ObjectsApi) -> SecretStore:
    return SecretStore(api, "ns", "certificate")


@pytest.fixture(params=["directory", "secret"])
def store(request, tmp_path):
    """A function that opens the same storage anew, as another process does."""
    api = ObjectsApi()
    return lambda: (
        DirectoryStore(tmp_path / "certs") if request.param == "directory" else secret_store(api)
    )


async def test_the_first_replica_makes_a_certificate_and_the_next_takes_it(store):
    first = await manager(store()).ensure()
    assert await manager(store()).ensure() == first


@pytest.mark.parametrize(
    "host",
    ["fd00:0::1", "FD00::1", "::ffff:10.0.0.1", "fe80::1%eth0", "fe80::1%25eth0", "10.0.0.1"],
)
async def test_an_address_in_any_form_gets_one_certificate(store, host):
    first = await CertificateManager(store(), [host], now=lambda: NOW).ensure()
    assert await CertificateManager(store(), [host], now=lambda: NOW).ensure() == first


async def test_replicas_that_start_together_agree(store):
    bundles = await asyncio.gather(*(manager(store()).ensure() for _ in range(5)))
    assert len(set(bundles)) == 1


async def test_it_is_renewed_before_it_ends_by_whoever_looks_first(store):
    days = [0.0]
    one, two = (manager(store(), now=lambda: NOW + days[0] * DAY) for _ in range(2))
    first = await one.ensure()
    assert await two.ensure() == first
    days[0] = 61
    renewed = await two.ensure()
    assert renewed.cert_pem != first.cert_pem
    assert renewed.ca_pem == first.ca_pem
    assert await one.ensure() == renewed
    assert one.expiry() == {"serving": NOW + (61 + 90) * DAY, "authority": NOW + 730 * DAY}


async def test_a_save_under_an_old_version_changes_nothing(store, tmp_path):
    bundle = await manager(store()).ensure()
    another = await manager(DirectoryStore(tmp_path / "another")).ensure()
    assert not await store().save(another, "")
    assert not await store().save(another, "12345")
    assert (await store().load()).bundle == bundle


async def test_files_with_keys_are_private(tmp_path):
    await manager(DirectoryStore(tmp_path / "certs")).ensure()
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certs").iterdir()
    }
    assert modes["ca.key"] == modes["tls.key"] == 0o600
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700


async def test_a_half_written_directory_is_made_whole(tmp_path):
    bundle = await manager(DirectoryStore(tmp_path)).ensure()
    (tmp_path / "tls.key").unlink()
    repaired = await manager(DirectoryStore(tmp_path)).ensure()
    assert repaired != bundle
    assert repaired.ca_pem == bundle.ca_pem
    assert (await DirectoryStore(tmp_path).load()).bundle == repaired


async def test_a_secret_that_a_person_made_is_filled_and_keeps_its_type():
    api = ObjectsApi()
    junk = {
        "tls.crt": "%%%",
        "tls.key": base64.b64encode(b"junk").decode(),
        "ca.key": 7,
        "ca.crt": None,
    }
    metadata = {
        "namespace": "ns",
        "name": "certificate",
        "annotations": {"mine": "x"},
        "labels": {"a": "b"},
    }
    api.put(SECRETS, {"metadata": metadata, "type": "Opaque", "data": junk})
    bundle = await manager(secret_store(api)).ensure()
    stored = api.named(SECRETS, "ns", "certificate")
    assert stored["type"] == "Opaque"
    assert stored["metadata"]["annotations"] == {"mine": "x"}
    assert stored["metadata"]["labels"] == {"a": "b", "app.kubernetes.io/name": "vreplica-webhook"}
    assert (await secret_store(api).load()).bundle == bundle


async def test_an_api_server_that_does_not_answer_leaves_the_certificate_in_use():
    class Failing(ObjectsApi):
        down = False

        async def get(self, *args, **kwargs):
            if self.down:
                raise OutcomeUnknown(0, "", "connection refused")
            return await super().get(*args, **kwargs)

    api = Failing()
    keeper = manager(secret_store(api))
    await keeper.ensure()
    api.down = True
    with pytest.raises(OutcomeUnknown):
        await keeper.ensure()
    assert keeper.expiry()["serving"] == NOW + 90 * DAY


@pytest.mark.parametrize(
    "data", [None, [], "text", 7, {}, {"tls.crt": ["x"]}, {"ca.crt": "A" * 2_000_000}]
)
async def test_a_secret_whose_data_is_no_map_of_texts_is_filled(data: Any):
    api = ObjectsApi()
    api.put(SECRETS, {"metadata": {"namespace": "ns", "name": "certificate"}, "data": data})
    bundle = await manager(secret_store(api)).ensure()
    assert (await secret_store(api).load()).bundle == bundle
    assert all(len(part) <= PEM_BYTES_MAX for part in bundle.files().values())


async def test_what_is_stored_is_served_even_where_it_may_not_be_renewed():
    class ReadOnly(ObjectsApi):
        may_write = True

        async def update(self, *args, **kwargs):
            if not self.may_write:
                raise Forbidden(403, "Forbidden", "secrets is forbidden")
            return await super().update(*args, **kwargs)

    api = ReadOnly()
    bundle = await manager(secret_store(api)).ensure()
    api.may_write = False
    restarted = manager(secret_store(api), now=lambda: NOW + 70 * DAY)
    with pytest.raises(Forbidden):
        await restarted.ensure()
    assert restarted.served_pem == bundle.cert_pem


async def test_a_writer_who_undoes_every_step_is_told_and_not_fought_for_ever(tmp_path):
    class Undone(DirectoryStore):
        async def save(self, bundle: Bundle, version: str) -> bool:
            assert await super().save(bundle, version)
            (await self._undo())
            return True

        async def _undo(self) -> None:
            await asyncio.to_thread((tmp_path / "tls.crt").write_bytes, b"")

    with pytest.raises(CertificateError, match="is somebody else writing it"):
        await manager(Undone(tmp_path)).ensure()


async def test_losing_every_race_ends_with_an_error():
    class Unlucky:
        tries = 0

        async def load(self) -> Stored:
            return Stored(None, "")

        async def save(self, bundle: Bundle, version: str) -> bool:
            self.tries += 1
            return False

    store = Unlucky()
    with pytest.raises(CertificateError, match="8 times by other replicas and 0 times by this one"):
        await manager(store).ensure()
    assert store.tries == RACES_MAX


async def served_certificate(port: int, trusted: bytes, **settings: Any) -> bytes:
    context = ssl.create_default_context(cadata=trusted.decode())
    for name, value in settings.items():
        setattr(context, name, value)
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return bytes(certificate)


async def test_a_running_server_serves_the_new_certificate_without_a_restart(tmp_path):
    # Certificates of today, since the TLS client has no other clock.
    keeper = manager(DirectoryStore(tmp_path), now=time.time)
    bundle = await keeper.ensure()
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=keeper.context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        before = await served_certificate(port, bundle.ca_pem)
        (tmp_path / "tls.crt").write_bytes(b"junk")
        renewed = await keeper.ensure()
        after = await served_certificate(port, renewed.ca_pem)
        assert before == ssl.PEM_cert_to_DER_cert(bundle.cert_pem.decode())
        assert after == ssl.PEM_cert_to_DER_cert(renewed.cert_pem.decode())
        assert before != after


def test_tls_older_than_1_2_is_not_spoken(tmp_path):
    assert manager(DirectoryStore(tmp_path)).context.minimum_version is ssl.TLSVersion.TLSv1_2


class TestFiles:
    def files(self, folder) -> tuple[str, str]:
        return str(folder / "tls.crt"), str(folder / "tls.key")

    async def test_a_certificate_of_somebody_elses_is_served_and_nothing_is_written(self, tmp_path):
        await manager(DirectoryStore(tmp_path)).ensure()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        ours = FileCertificates(CertificateFiles(*self.files(tmp_path)), now=lambda: NOW)
        assert ours.served_pem == b""
        assert await ours.ensure() is None
        assert ours.served_pem == before["tls.crt"]
        assert ours.expiry() == {"serving": NOW + 90 * DAY}
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    async def test_files_that_are_not_there_yet_are_asked_for_again(self, tmp_path):
        ours = FileCertificates(CertificateFiles(*self.files(tmp_path)), now=lambda: NOW)
        with pytest.raises(FileNotFoundError):
            await ours.ensure()
        await manager(DirectoryStore(tmp_path)).ensure()
        await ours.ensure()
        assert ours.served_pem

    async def until_told(self, ours: FileCertificates) -> None:
        while True:
            await ours.ensure()
            await asyncio.sleep(0.01)

    async def test_files_that_cannot_be_used_any_more_are_told(self, tmp_path):
        await manager(DirectoryStore(tmp_path)).ensure()
        ours = FileCertificates(CertificateFiles(*self.files(tmp_path)), now=lambda: NOW)
        await ours.ensure()
        served = ours.served_pem
        (tmp_path / "tls.key").write_bytes(b"junk")
        following = asyncio.create_task(ours.run())
        with pytest.raises(CertificateError, match="not reloaded, the old one stays"):
            await self.until_told(ours)
        following.cancel()
        assert ours.served_pem == served


async def test_who_only_serves_takes_what_another_process_has_stored_and_writes_nothing():
    api = ObjectsApi()
    api.put(SECRETS, {"metadata": {"namespace": "ns", "name": "c"}, "type": "Opaque"})
    follower = StoredCertificates(SecretStore(api, "ns", "c"), HOSTS, now=lambda: NOW)
    with pytest.raises(CertificateError, match="--upkeep=only"):
        await follower.ensure()
    assert api.writes == 0
    keeper = CertificateManager(SecretStore(api, "ns", "c"), HOSTS, now=lambda: NOW)
    bundle = await keeper.ensure()
    written = api.writes
    assert await follower.ensure() is None
    assert (follower.served_pem, follower.expiry()) == (bundle.cert_pem, bundle.expiry())
    # What another one has spoilt changes nothing of what is served, and is told.
    await SecretStore(api, "ns", "c").load()
    api.put(
        SECRETS,
        {"metadata": {"namespace": "ns", "name": "c"}, "type": "Opaque", "data": {"tls.crt": ""}},
    )
    with pytest.raises(CertificateError):
        await follower.ensure()
    assert follower.served_pem == bundle.cert_pem
    assert api.writes == written
