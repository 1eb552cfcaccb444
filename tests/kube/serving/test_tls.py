"""Certificates that are replaced while a server runs: what is served, to whom, and that no
handshake is lost by it.
"""

import asyncio
import datetime
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509

from extender.kube.serving.tls import (
    WARNING_PERIOD_S,
    CertificateFiles,
    ServingCertificate,
    SwitchedContext,
    Validity,
)
from tests.service.authority import Authority, client_context

HOUR = 3600.0


def loaded(files: CertificateFiles) -> ServingCertificate:
    certificate = ServingCertificate(files)
    certificate.load()
    return certificate


def copy(source: str, target: str) -> None:
    """As a mounted Secret is replaced: another file under the same name. Timestamps of two writes
    may be the same.
    """
    Path(f"{target}.new").write_bytes(Path(source).read_bytes())
    Path(f"{target}.new").replace(target)


def remove(name: str) -> None:
    Path(name).unlink()


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[int]:
    """A TLS server that sends back a line; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def served(port: int, client: ssl.SSLContext, name: str | None = "localhost") -> int:
    """Serial number of the certificate that a new connection, over which a line goes and comes, is
    served with.
    """
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client, server_hostname=name or ""
    )
    raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(b"a line\n")
    assert await reader.readline() == b"a line\n"
    writer.close()
    return x509.load_der_x509_certificate(raw).serial_number


def serial(file: str) -> int:
    return x509.load_pem_x509_certificate(Path(file).read_bytes()).serial_number


async def test_a_certificate_that_is_replaced_is_served_and_half_of_one_changes_nothing(
    tmp_path: Path,
):
    authority = Authority(tmp_path, "ca")
    cert_file, key_file = authority.issue("serving")
    certificate = loaded(CertificateFiles(cert_file, key_file))
    client = client_context(authority, None)
    async with listening(certificate.context) as port:
        first = await served(port, client)
        assert not certificate.reload_if_changed()
        other_cert, other_key = authority.issue("other")
        copy(other_cert, cert_file)
        assert not certificate.reload_if_changed(), "the key is still the old one"
        assert "not reloaded" in certificate.problem
        assert await served(port, client) == first
        copy(other_key, key_file)
        assert certificate.reload_if_changed()
        assert certificate.problem == ""
        assert await served(port, client) == serial(other_cert) != first
        remove(cert_file)
        assert not certificate.reload_if_changed(), "gone for a moment"
        assert await served(port, client) == serial(other_cert)


@pytest.mark.parametrize("error", [ValueError("no date"), RuntimeError("of a library")])
async def test_whatever_looking_at_the_files_dies_of_the_next_look_finds_the_new_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    authority = Authority(tmp_path, "ca")
    cert, key = authority.issue("one")
    certificate = loaded(CertificateFiles(cert, key))
    for source, target in zip(authority.issue("two"), (cert, key), strict=True):
        copy(source, target)

    def fail(_self: CertificateFiles) -> ssl.SSLContext:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(CertificateFiles, "context", fail)
        certificate.look()
    assert str(error) in certificate.problem
    certificate.look()
    assert (certificate.problem, certificate.reloads) == ("", 1)


async def test_a_client_that_names_no_server_is_served_too(tmp_path: Path):
    authority = Authority(tmp_path, "ca")
    cert_file, key_file = authority.issue("serving")
    certificate = loaded(CertificateFiles(cert_file, key_file))
    async with listening(certificate.context) as port:
        assert await served(port, client_context(authority, None), None) == serial(cert_file)


async def test_before_there_is_a_certificate_a_handshake_fails(tmp_path: Path):
    switch = SwitchedContext()
    async with listening(switch.front) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served(port, client_context(Authority(tmp_path, "ca"), None))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_in_100_reloads_under_load_no_handshake_fails(tmp_path: Path):
    """Loading a new pair into the context in use lost one in twenty of them."""
    authority = Authority(tmp_path, "ca")
    cert_file, key_file = authority.issue("serving")
    pairs = [authority.issue(f"pair-{number}") for number in range(2)]
    certificate = loaded(CertificateFiles(cert_file, key_file))
    stop, seen = asyncio.Event(), set[int]()

    async def keep_connecting(port: int) -> None:
        client = client_context(authority, None)
        while not stop.is_set():
            seen.add(await served(port, client))

    async with listening(certificate.context) as port, asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(keep_connecting(port))
        for number in range(100):
            copy(pairs[number % 2][1], key_file)
            copy(pairs[number % 2][0], cert_file)
            assert await asyncio.to_thread(certificate.reload_if_changed)
        stop.set()
    assert certificate.reloads == 100
    assert {serial(pair[0]) for pair in pairs} <= seen


@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda it: it.name
)
async def test_a_client_whose_authority_was_taken_away_cannot_resume_the_session_that_it_had(
    tmp_path: Path, version: ssl.TLSVersion
):
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(authority.pem + other.pem)
    certificate = loaded(CertificateFiles(*authority.issue("serving"), str(trusted)))
    client = client_context(authority, authority.issue("client"))
    client.maximum_version = version

    def connect(port: int, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
            client.wrap_socket(raw, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(b"a line\n")
            if connection.recv(100) != b"a line\n":
                raise ConnectionError("closed")
            assert not connection.session_reused
            return connection.session

    async with listening(certificate.context) as port:
        session = await asyncio.to_thread(connect, port, None)
        await asyncio.to_thread(connect, port, None)  # it may come again
        trusted.write_bytes(other.pem)
        assert certificate.reload_if_changed()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(connect, port, session)


@pytest.mark.parametrize(
    ("hours_left", "warnings"),
    [
        pytest.param(1.0, 0, id="half of its life left"),
        pytest.param(0.3, 1, id="less than a fifth left"),
        pytest.param(-0.5, 1, id="ended"),
    ],
)
def test_a_certificate_that_nobody_replaces_is_told_before_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hours_left: float, warnings: int
):
    authority = Authority(tmp_path, "ca")
    files = CertificateFiles(*authority.issue("serving"), str(authority.file))
    now = [0.0]
    certificate = ServingCertificate(files, now=lambda: now[0])
    certificate.load()
    end = certificate.expiry()["serving"]
    assert end == pytest.approx(time.time() + HOUR, abs=60)
    assert certificate.expiry()["client_ca"] == pytest.approx(end, abs=60)
    now[0] = end - hours_left * HOUR
    with caplog.at_level(logging.WARNING):
        certificate.look()
        certificate.look()
        assert len(caplog.records) == warnings
        now[0] += WARNING_PERIOD_S
        certificate.look()
    assert len(caplog.records) == warnings + 1, "by then it has ended, and is told again"
    assert "nobody has replaced it" in caplog.records[-1].message


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (datetime.timedelta(days=3), "ends in 3.0 days"),
        (datetime.timedelta(hours=5), "ends in 5.0 hours"),
        (-datetime.timedelta(hours=5), "ended 5.0 hours ago"),
        (-datetime.timedelta(days=30), "ended 30.0 days ago"),
    ],
)
def test_the_time_that_is_left_is_told_in_words(left: datetime.timedelta, text: str):
    assert Validity(0.0, 1e9).describe_end(1e9 - left.total_seconds()) == text
