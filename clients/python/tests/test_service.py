"""Requests: who is asked, with which token, over which TLS, and what is too much."""

import asyncio
import datetime
import socket
import ssl
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vreplica_adapter.service import Access, Service, ServiceError


class Authority:
    """A CA, and server certificates by it for 127.0.0.1."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.crt"
        self._folder = folder
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject, key):
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def context(self, address: str = "127.0.0.1") -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(x509.Name([]), key)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=True
            )
            .sign(self._key, hashes.SHA256())
        )
        pem = self._folder / "server.pem"
        pem.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


class Replica:
    """Answers what it is told to, and notes who asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.headers: dict[str, str] = {}
        self.tokens: list[str] = []
        self.url = ""
        self.lines: list[bytes] = []
        self.stays = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if request.method == "POST":
            return web.Response(status=self.status, body=self.body, headers=self.headers)
        reply = web.StreamResponse(status=self.status)
        await reply.prepare(request)
        for line in self.lines:
            await reply.write(line)
        await self.stays.wait()
        return reply


@asynccontextmanager
async def running(tls: ssl.SSLContext | None = None):
    replica = Replica()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", replica.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    replica.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield replica
    finally:
        replica.stays.set()
        await runner.cleanup()


@asynccontextmanager
async def asking(*urls: str, request_s: float = 1.0, idle_s: float = 1.0, **access):
    service = Service(Access(urls, **access), request_s=request_s, idle_s=idle_s)
    try:
        yield service
    finally:
        await service.close()


async def refused(service: Service) -> ServiceError:
    with pytest.raises(ServiceError) as error:
        await service.post("/v1/acknowledge", b"{}", 1.0)
    return error.value


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


async def test_the_token_is_read_anew_for_each_request(authority, token):
    async with (
        running(authority.context()) as replica,
        asking(replica.url, ca_file=authority.file, token_file=token) as service,
    ):
        await service.post("/", b"{}", 1.0)
        token.write_text("second")
        await service.post("/", b"{}", 1.0)
        assert replica.tokens == ["Bearer first", "Bearer second"]


async def test_a_certificate_of_another_authority_is_refused_and_sees_no_token(
    authority, token, tmp_path
):
    other = Authority(tmp_path, "other")
    async with (
        running(other.context()) as replica,
        asking(replica.url, ca_file=authority.file, token_file=token) as service,
    ):
        assert "certificate verify failed" in str(await refused(service))
        assert replica.tokens == []


async def test_a_certificate_for_another_name_is_refused(authority, token):
    async with (
        running(authority.context("10.0.0.1")) as replica,
        asking(replica.url, ca_file=authority.file, token_file=token) as service,
    ):
        assert "certificate verify failed" in str(await refused(service))
        assert replica.tokens == []


async def test_a_new_authority_counts_from_the_next_request_on(authority, token, tmp_path):
    other = Authority(tmp_path, "other")
    mounted = tmp_path / "ca.crt"
    mounted.write_bytes(other.file.read_bytes())
    async with (
        running(authority.context()) as replica,
        asking(replica.url, ca_file=mounted, token_file=token) as service,
    ):
        await refused(service)
        mounted.write_bytes(authority.file.read_bytes())
        await service.post("/", b"{}", 1.0)
        mounted.write_bytes(b"")
        assert "no certificate" in str(await refused(service)), "never the system's authorities"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "there is no token", id="empty"),
        pytest.param(b"a\r\nb", "there is no token", id="two lines"),
        pytest.param(b"\xff", "it is not text", id="no text"),
        pytest.param(None, "No such file", id="missing"),
    ],
)
async def test_without_a_token_nothing_is_sent(authority, token, content, said):
    if content is None:
        token.unlink()
    else:
        token.write_bytes(content)
    async with (
        running(authority.context()) as replica,
        asking(replica.url, ca_file=authority.file, token_file=token) as service,
    ):
        assert said in str(await refused(service))
        assert replica.tokens == []


async def test_replicas_are_tried_in_turn_and_the_one_that_answered_first_next_time():
    async with running() as one, running() as two, asking(one.url, two.url) as service:
        one.status = 503
        await service.post("/", b"{}", 1.0)
        await service.post("/", b"{}", 1.0)
        assert (len(one.tokens), len(two.tokens)) == (1, 2)


async def test_all_that_replicas_say_is_told_on_one_line_and_the_longest_wait_is_held():
    async with running() as one, running() as two, asking(one.url, two.url) as service:
        one.status, one.body, one.headers = 503, b"starting\n\x1b[31m", {"Retry-After": "3"}
        two.status, two.body = 400, b"x" * 100_000
        error = await refused(service)
        assert "503 starting" in str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 2001
        assert (error.status, error.retry_after_s) == (400, 3.0)


async def test_a_newer_generation_that_one_replica_knows_is_the_answer():
    """Another one that is behind might still take what is out of date."""
    body = b'{"error":"generation 3 is out of date: acknowledge 5","generation":5}'
    async with running() as one, running() as two, asking(one.url, two.url) as service:
        one.status, one.body = 409, body
        error = await refused(service)
        assert (error.status, error.said) == (409, body.decode())
        assert two.tokens == []


async def test_a_newer_generation_after_a_replica_that_is_behind_is_the_answer_at_once():
    """The wait is what the other replica has asked for."""
    async with running() as one, running() as two, asking(one.url, two.url) as service:
        one.status, one.body, one.headers = 409, b'{"generation":2}', {"Retry-After": "1"}
        two.status, two.body = 409, b'{"generation":5}'
        error = await refused(service)
        assert (error.status, error.said, error.retry_after_s) == (409, two.body.decode(), 0.0)


@pytest.mark.parametrize("port", ["102640", "x"])
def test_a_port_that_is_no_port_is_refused_at_once(port: str):
    with pytest.raises(ValueError, match=f"{port}.*[Pp]ort|[Pp]ort.*{port}"):
        Access([f"https://scheduler:{port}"])


async def test_a_replica_that_does_not_know_a_generation_yet_is_passed_over():
    async with running() as one, running() as two, asking(one.url, two.url) as service:
        one.status, one.body, one.headers = 409, b'{"generation":2}', {"Retry-After": "1"}
        two.body = b'{"generation":3}'
        assert await service.post("/v1/acknowledge", b"{}", 1.0) == two.body


async def test_a_redirect_is_no_answer():
    async with running() as one, running() as two, asking(one.url) as service:
        one.status, one.headers = 307, {"Location": two.url}
        assert (await refused(service)).status == 307
        assert two.tokens == []


async def test_a_host_that_is_not_known_is_told():
    async with asking("http://no-such-host.invalid") as service:
        assert "no-such-host.invalid" in str(await refused(service))


async def test_an_answer_that_is_too_long_is_refused():
    async with running() as replica, asking(replica.url) as service:
        replica.body = b"x" * 2_000_000
        assert "longer than" in str(await refused(service))


async def lines_of(service: Service) -> tuple[list[bytes], str]:
    """All lines of a stream, and how it ended."""
    lines: list[bytes] = []

    async def read() -> None:
        async with aclosing(service.lines("/v1/assignment")) as stream:
            async for line in stream:
                lines.append(line)  # noqa: PERF401 (the stream ends with an error)

    with pytest.raises(ServiceError) as error:
        await read()
    return lines, str(error.value)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        pytest.param([b"one\ntwo\n"], [b"one", b"two"], id="two at once"),
        pytest.param([b"o", b"ne\nt", b"wo\n"], [b"one", b"two"], id="in parts"),
        pytest.param([b"one\r\n\n\n"], [b"one"], id="empty lines"),
        pytest.param([b"one\ntw"], [b"one"], id="cut off"),
    ],
)
async def test_a_stream_is_read_line_by_line(sent, read):
    async with running() as replica, asking(replica.url) as service:
        replica.lines = sent
        replica.stays.set()
        lines, said = await lines_of(service)
        assert lines == read
        assert "ended" in said


async def test_a_stream_that_says_nothing_is_left():
    async with running() as replica, asking(replica.url, request_s=0.05) as service:
        assert await lines_of(service) == ([], "the stream was silent for 0.05 s")


async def test_a_stream_that_falls_silent_is_left():
    async with running() as replica, asking(replica.url, idle_s=0.05) as service:
        replica.lines = [b"one\n"]
        assert await lines_of(service) == ([b"one"], "the stream was silent for 0.05 s")


async def test_a_line_without_an_end_takes_no_more_memory_than_its_limit():
    async with running() as replica, asking(replica.url) as service:
        replica.lines = [b"x" * 100_000] * 30
        assert "longer than" in (await lines_of(service))[1]


async def test_a_replica_that_is_avoided_is_asked_last():
    """One that answers and then says nothing would be chosen every time."""
    async with running() as one, running() as two, running() as three:
        replicas, asked = (one, two, three), []
        async with asking(*(replica.url for replica in replicas)) as service:
            for _ in range(5):
                before = [len(replica.tokens) for replica in replicas]
                await service.post("/v1/acknowledge", b"{}", 1)
                after = [len(replica.tokens) for replica in replicas]
                asked += [index for index in range(3) if after[index] > before[index]]
                service.avoid()
    assert asked == [0, 1, 2, 0, 1]


async def test_a_replica_that_cannot_be_reached_is_told_without_objects_of_the_program(authority):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with asking(f"https://127.0.0.1:{port}", ca_file=authority.file) as service:
        error = await refused(service)
    assert str(error).startswith(f"https://127.0.0.1:{port}: [Errno 111] ")
    assert "ssl:" not in str(error)


async def test_a_certificate_that_is_not_of_the_ca_is_told_in_words(authority, tmp_path):
    other = Authority(tmp_path, "theirs")
    async with (
        running(other.context()) as replica,
        asking(replica.url, ca_file=authority.file) as service,
    ):
        error = await refused(service)
    assert "certificate verify failed" in str(error)
    assert "ssl:" not in str(error)
