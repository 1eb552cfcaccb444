"""The listener for controllers in other pods: what it serves, to whom, and what a refused caller is
told.
"""

import io
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from extender.config.model import Config, ScheduleConfig, TlsConfig
from extender.kube.api import ApiError, Forbidden
from extender.scheduling_api import (
    CallersVPod,
    GetTotalVReplicas,
    HttpScheduler,
    NotScheduled,
    RequestRefused,
)
from extender.service.app import Service
from tests.e2e.processes import free_port
from tests.service.authority import Authority, client_context
from tests.service.http.reviewing import Reviewing
from tests.service.http.test_schedule import a_request
from tests.support.service import a_world, until

ACCOUNT = "knative-eventing/kafka-controller"
USER = "system:serviceaccount:knative-eventing:kafka-controller"
TOKEN = "aaa.bbb.ccc-_9"
POOL = "knative-eventing/dispatcher"


@dataclass
class Listening:
    service: Service
    api: Reviewing
    session: aiohttp.ClientSession
    authority: Authority
    certificate: tuple[str, str] | None = None

    @property
    def url(self) -> str:
        server = self.service.schedule_server
        assert server is not None
        return server.url.replace("0.0.0.0", "127.0.0.1")

    async def send(
        self, path: str, headers: Mapping[str, str], body: object = None
    ) -> tuple[int, str, Mapping[str, str]]:
        async with self.session.request(
            "GET" if body is None else "POST",
            f"{self.url}{path}",
            headers=headers,
            json=body,
            ssl=client_context(self.authority, self.certificate),
        ) as reply:
            return reply.status, await reply.text(), reply.headers

    def refused(self) -> dict[str, int]:
        server = self.service.schedule_server
        assert server is not None
        return dict(server.callers.refused)


def bearing(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def listening(folder: Path, **tls) -> AsyncIterator[Listening]:
    world = await a_world(0, 1, 2)
    authority = Authority(folder, "ca")
    cert_file, key_file = authority.issue("serving", "vreplica-schedule.vreplica-system.svc")
    api = world.api = Reviewing(world.cluster)
    api.users = {TOKEN: USER, "other": "system:serviceaccount:tenant:default"}
    config = ScheduleConfig(
        host="127.0.0.1",
        port=free_port(),
        allowed_service_accounts=() if tls else (ACCOUNT,),
        tls=TlsConfig(cert_file=cert_file, key_file=key_file, **tls),
    )
    async with (
        world.serving(serve=True, schedule=config) as service,
        aiohttp.ClientSession() as session,
    ):
        await until(service.leading, timeout_s=5)
        yield Listening(service, api, session, authority)


async def test_a_caller_with_an_allowed_token_is_placed_and_sees_its_pool(tmp_path: Path):
    async with listening(tmp_path) as it:
        status, text, _ = await it.send("/v1/schedule", bearing(), a_request(vreplicas=4))
        assert (status, len(orjson.loads(text)["placements"])) == (200, 3)
        status, text, _ = await it.send(f"/state.json?pool={POOL}", bearing())
        (pool,) = orjson.loads(text)["pools"]
        assert (status, pool["found"], pool["capacity"]) == (200, True, 20)
        assert pool["vpodList"] == [{"name": "tenant/a@broker.x.dev"}]
        status, text, _ = await it.send("/state.json?vpod=tenant/a@broker.x.dev", bearing())
        assert orjson.loads(text) == {"pools": [{"name": POOL}]}
        assert it.refused() == {}


@pytest.mark.parametrize(
    ("headers", "status", "says", "reason"),
    [
        pytest.param({}, 401, "is required", "no token", id="no token"),
        pytest.param(bearing(""), 401, "is required", "no token", id="an empty token"),
        pytest.param({"Authorization": f"Basic {TOKEN}"}, 401, "required", "no token", id="Basic"),
        pytest.param(bearing("a b"), 401, "required", "no token", id="a space in it"),
        pytest.param(bearing("x" * 4097), 401, "is required", "no token", id="too long"),
        pytest.param(
            bearing("unknown"), 401, "does not accept", "not authenticated", id="not the cluster's"
        ),
        pytest.param(
            bearing("other"),
            403,
            "system:serviceaccount:tenant:default is not in schedule.allowedServiceAccounts",
            "not allowed",
            id="an account that is not named",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/v1/schedule", f"/state.json?pool={POOL}", "/v1/bind", "/x"])
async def test_nobody_else_gets_anything_and_is_told_why(
    tmp_path: Path,
    headers: Mapping[str, str],
    status: int,
    says: str,
    reason: str,
    path: str,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    async with listening(tmp_path) as it:
        body = None if path.startswith("/state") else a_request()
        got, text, answered = await it.send(path, headers, body)
        assert (got, it.refused()) == (status, {reason: 1})
        assert says in text
        assert answered.get("WWW-Authenticate", "") == ("Bearer" if status == 401 else "")
        token = headers.get("Authorization", "").rpartition(" ")[2]
        assert len(token) < 5 or token not in text + caplog.text


@pytest.mark.parametrize(
    "path",
    ["/v1/bind", "/v1/filter", "/v1/prioritize", "/v1/preempt", "/v1/plan", "/metrics", "/ui"],
)
async def test_of_the_extenders_routes_an_allowed_caller_finds_no_other(tmp_path: Path, path: str):
    async with listening(tmp_path) as it:
        assert (await it.send(path, bearing(), {}))[0] == 404
        assert (await it.send(path, bearing()))[0] == 404


@pytest.mark.parametrize(
    "query", ["", "?pool=", f"?pool={POOL}&vpod=a/b", f"?pool={'x' * 2000}"], ids=len
)
async def test_a_caller_sees_one_pool_at_a_time(tmp_path: Path, query: str):
    async with listening(tmp_path) as it:
        assert (await it.send(f"/state.json{query}", bearing()))[0] == 400


@pytest.mark.parametrize(
    ("trouble", "logged"),
    [
        (Forbidden(403, "Forbidden", "no"), "may not create tokenreviews"),
        (ApiError(500, "InternalError", "etcd\nis away"), "etcd"),
    ],
    ids=["no right", "no answer"],
)
async def test_a_token_that_cannot_be_reviewed_is_not_believed_and_the_log_says_why_once(
    tmp_path: Path, trouble: ApiError, logged: str, caplog: pytest.LogCaptureFixture
):
    async with listening(tmp_path) as it:
        it.api.trouble = trouble
        for _ in range(3):
            status, text, headers = await it.send("/v1/schedule", bearing(), a_request())
            assert (status, headers["Retry-After"]) == (503, "1")
            assert TOKEN not in text
        warnings = [record for record in caplog.records if "not reviewed" in record.getMessage()]
        assert len(warnings) == 1
        assert logged in warnings[0].getMessage()
        it.api.trouble = None
        assert (await it.send("/v1/schedule", bearing(), a_request()))[0] == 200


async def test_tokens_that_fail_between_those_of_a_known_caller_fill_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with listening(tmp_path) as it:
        assert (await it.send("/v1/schedule", bearing(), a_request()))[0] == 200
        it.api.trouble = ApiError(500, "InternalError", "etcd")
        for index in range(4):
            assert (await it.send("/v1/schedule", bearing(f"junk-{index}"), a_request()))[0] == 503
            assert (await it.send("/v1/schedule", bearing(), a_request()))[0] == 200
        warnings = [record for record in caplog.records if "not reviewed" in record.getMessage()]
        assert len(warnings) == 1


async def test_an_account_that_is_taken_off_the_list_is_out_at_once(tmp_path: Path):
    async with listening(tmp_path) as it:
        assert (await it.send("/v1/schedule", bearing(), a_request()))[0] == 200
        config = ScheduleConfig(port=1, allowed_service_accounts=("tenant/default",))
        it.service.reconfigure(replace(Config(), schedule=config))
        assert (await it.send("/v1/schedule", bearing(), a_request()))[0] == 403
        assert (await it.send("/v1/schedule", bearing("other"), a_request()))[0] == 200


async def test_a_file_that_goes_from_tokens_to_certificates_lets_nobody_in_before_the_restart(
    tmp_path: Path,
):
    async with listening(tmp_path) as it:
        tls = TlsConfig(client_ca_file=str(it.authority.file), allowed_clients=("controller",))
        it.service.reconfigure(replace(Config(), schedule=ScheduleConfig(port=1, tls=tls)))
        it.certificate = it.authority.issue("controller")
        assert (await it.send("/v1/schedule", bearing(), a_request()))[0] == 403


@pytest.mark.parametrize(("name", "status"), [("controller", 200), ("stranger", 403)])
async def test_with_a_client_ca_the_certificate_counts_and_no_token(
    tmp_path: Path, name: str, status: int
):
    tls = {"client_ca_file": str(tmp_path / "ca.crt"), "allowed_clients": ("controller",)}
    async with listening(tmp_path, **tls) as it:
        it.certificate = it.authority.issue(name)
        assert (await it.send("/v1/schedule", {}, a_request()))[0] == status
        it.certificate = None
        with pytest.raises(aiohttp.ClientError):
            await it.send("/v1/schedule", bearing(), a_request())


async def test_a_body_over_the_limit_is_refused(tmp_path: Path):
    async with listening(tmp_path) as it:
        body = io.BytesIO(orjson.dumps(a_request(name="x" * 1_100_000)))
        headers = {**bearing(), "Content-Type": "application/json"}
        context = client_context(it.authority, None)
        url = f"{it.url}/v1/schedule"
        async with it.session.post(url, data=body, headers=headers, ssl=context) as reply:
            assert reply.status == 413


async def test_its_certificates_end_is_a_metric_beside_the_extenders(tmp_path: Path):
    async with listening(tmp_path) as it:
        text = it.service.metrics.render().decode()
        name = 'certificate_expiry_timestamp_seconds{certificate="schedule_serving"}'
        assert f"vreplica_scheduler_{name}" in text


# -- the Python client ---------------------------------------------------------------------------


def a_client(it: Listening, token_file: Path, **options: Any) -> HttpScheduler:
    return HttpScheduler(
        [it.url],
        pool=POOL,
        tls=client_context(it.authority, None),
        token_file=token_file,
        **options,
    )


VPOD = CallersVPod(namespace="tenant", name="a", vreplicas=4)


async def test_the_client_sends_the_token_that_the_file_has_at_that_moment(tmp_path: Path):
    token = tmp_path / "token"
    async with listening(tmp_path) as it, a_client(it, token) as scheduler:
        with pytest.raises(NotScheduled, match="cannot be read: No such file"):
            await scheduler.schedule(VPOD)
        token.write_text("expired")
        with pytest.raises(NotScheduled, match="does not accept the token") as caught:
            await scheduler.schedule(VPOD)
        assert "expired" not in str(caught.value)
        token.write_text(f"{TOKEN}\n")
        assert GetTotalVReplicas(await scheduler.schedule(VPOD)) == 4
        assert (await scheduler.describe())["name"] == POOL
        assert await scheduler.is_only_here(VPOD)
        token.write_text("other")
        with pytest.raises(RequestRefused, match="allowedServiceAccounts"):
            await scheduler.schedule(VPOD)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a\nb"], ids=["empty", "bytes", "lines"])
async def test_the_client_sends_nothing_that_is_no_token(tmp_path: Path, content: bytes):
    token = tmp_path / "token"
    token.write_bytes(content)
    url = "https://127.0.0.1:1"
    async with HttpScheduler([url], pool=POOL, token_file=token) as scheduler:
        with pytest.raises(NotScheduled, match=r"token in .*token"):
            await scheduler.schedule(VPOD)


def test_a_token_is_never_sent_in_clear(tmp_path: Path):
    with pytest.raises(ValueError, match="https:// URLs only"):
        HttpScheduler(["http://a"], pool=POOL, token_file=tmp_path / "token")


async def test_the_client_reads_the_authorities_anew_without_a_restart(tmp_path: Path):
    token, ca_file = tmp_path / "token", tmp_path / "mounted.crt"
    token.write_text(TOKEN)
    ca_file.write_text("")
    async with listening(tmp_path) as it:
        url = it.url.replace("127.0.0.1", "localhost")
        authority = it.authority.file.read_text()
        other = Authority(tmp_path, "other-ca").file.read_text()
        async with HttpScheduler([url], pool=POOL, ca_file=ca_file, token_file=token) as scheduler:
            for content, says in (
                ("", "no certificate in"),
                ("none", "no certificate in"),
                (other, "CERTIFICATE_VERIFY_FAILED"),
            ):
                ca_file.write_text(content)
                with pytest.raises(NotScheduled, match=says):
                    await scheduler.schedule(VPOD)
            # As while one authority replaces another.
            ca_file.write_text(other + authority)
            assert GetTotalVReplicas(await scheduler.schedule(VPOD)) == 4
            ca_file.unlink()
            with pytest.raises(NotScheduled, match=r"the CA in .*mounted.crt cannot be read"):
                await scheduler.schedule(VPOD)


def test_the_client_takes_one_of_a_context_and_a_file_of_authorities(tmp_path: Path):
    with pytest.raises(ValueError, match="not both"):
        HttpScheduler(
            ["https://a"], pool=POOL, tls=ssl.create_default_context(), ca_file=tmp_path / "ca"
        )


async def test_the_client_verifies_the_name_that_it_was_given_and_not_the_address(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with listening(tmp_path) as it:
        context = client_context(it.authority, None)
        context.check_hostname = True
        for host, fits in (("localhost", True), ("127.0.0.1", False)):
            url = it.url.replace("127.0.0.1", host)
            scheduler = HttpScheduler([url], pool=POOL, tls=context, token_file=token)
            async with scheduler:
                if fits:
                    assert GetTotalVReplicas(await scheduler.schedule(VPOD)) == 4
                else:
                    with pytest.raises(NotScheduled, match="CERTIFICATE_VERIFY_FAILED"):
                        await scheduler.schedule(VPOD)
