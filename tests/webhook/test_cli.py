import asyncio
import base64
import copy
import ssl
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson
import pytest
from cryptography import x509

from extender.kube.api import (
    ADAPTERPOOLS,
    CONFIGMAPS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    VPODS,
    Forbidden,
    OutcomeUnknown,
)
from tests.webhook.builders import ObjectsApi, a_pod, a_pool_object, a_vpod_object, review
from tests.webhook.test_registration import a_configuration
from webhook import upkeep
from webhook.certs import CertificateError, CertificateManager
from webhook.cli import UpkeepOnly, Webhook
from webhook.settings import Settings, UpkeepMode
from webhook.stores import DirectoryStore
from webhook.x509 import certificates_in


def installed() -> ObjectsApi:
    api = ObjectsApi()
    api.put(MUTATING_WEBHOOKS, a_configuration("/mutate"))
    api.put(VALIDATING_WEBHOOKS, a_configuration("/validate"))
    api.put(ADAPTERPOOLS, a_pool_object())
    api.put(VPODS, a_vpod_object(placements={"dispatcher-1": 3}))
    return api


async def test_from_nothing_to_a_verified_answer_and_a_clean_stop(unused_tcp_port):
    api, stop, url = installed(), asyncio.Event(), f"https://localhost:{unused_tcp_port}"
    settings = Settings(
        host="127.0.0.1", port=unused_tcp_port, secret=("ns", "certificate"), url=url
    )
    running = asyncio.create_task(Webhook(settings, api).run(stop))
    for _ in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await api.patches.get()
    configuration = api.named(MUTATING_WEBHOOKS, "", "vreplica-scheduler")
    client_config = configuration["webhooks"][0]["clientConfig"]
    assert client_config["url"] == f"{url}/mutate"
    # The way the API server calls it: by the URL, trusting the caBundle and nothing else.
    trusted = ssl.create_default_context(
        cadata=base64.b64decode(client_config["caBundle"]).decode()
    )
    async with aiohttp.ClientSession() as client:
        async with client.post(
            client_config["url"],
            data=review(a_pod()),
            headers={"Content-Type": "application/json"},
            ssl=trusted,
        ) as response:
            assert orjson.loads(await response.read())["response"]["patch"]
        async with client.get(f"{url}/readyz", ssl=trusted) as response:
            assert response.status == 200
    stop.set()
    await running
    assert api.named(SECRETS, "ns", "certificate")["type"] == "Opaque"


class ReadOnly(ObjectsApi):
    """The objects of another as an account that may write nothing has them."""

    def __init__(self, api: ObjectsApi) -> None:
        super().__init__()
        self.objects = api.objects

    async def _refused(self, *_args, **_kwargs):
        raise Forbidden(403, "Forbidden", "read-only")

    create = update = patch = delete = _refused


async def test_one_process_renews_and_publishes_and_another_serves_and_writes_nothing(
    unused_tcp_port,
):
    api, stop, url = installed(), asyncio.Event(), f"https://localhost:{unused_tcp_port}"
    # As the manifests bring it: empty, and of a type that stays.
    api.put(SECRETS, {"metadata": {"namespace": "ns", "name": "certificate"}, "type": "Opaque"})
    shared = Settings(host="127.0.0.1", port=unused_tcp_port, secret=("ns", "certificate"), url=url)
    keeper = UpkeepOnly(replace(shared, upkeep=UpkeepMode.ONLY), api)
    webhook = Webhook(replace(shared, upkeep=UpkeepMode.OTHER_PROCESS), ReadOnly(api))
    keeping = asyncio.create_task(keeper.run(stop))
    for _ in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await api.patches.get()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", unused_tcp_port)  # nobody can ask who may write
    serving = asyncio.create_task(webhook.run(stop))
    configuration = api.named(MUTATING_WEBHOOKS, "", "vreplica-scheduler")
    ca_bundle = base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"])
    trusted = ssl.create_default_context(cadata=ca_bundle.decode())
    async with aiohttp.ClientSession() as client:
        metrics = await _once_it_listens(client, f"{url}/metrics", trusted)
    stop.set()
    await asyncio.gather(keeping, serving)
    for certificate in ("serving", "authority"):
        assert f'expiry_timestamp_seconds{{certificate="{certificate}"}}' in metrics
    assert api.named(SECRETS, "ns", "certificate")["type"] == "Opaque"


async def test_another_servers_authorities_go_to_its_callers_and_not_into_the_registration():
    api, stop = installed(), asyncio.Event()
    before = copy.deepcopy(api.objects)
    api.put(CONFIGMAPS, {"metadata": {"namespace": "callers", "name": "ca"}})
    api.put(SECRETS, {"metadata": {"namespace": "ns", "name": "schedule"}, "type": "Opaque"})
    settings = Settings(
        secret=("ns", "schedule"),
        service=("ns", "vreplica-schedule"),
        ca_config_maps=(("callers", "ca"),),
    )
    keeper = UpkeepOnly(replace(settings, upkeep=UpkeepMode.ONLY), api)
    keeping = asyncio.create_task(keeper.run(stop))
    assert await api.patches.get() == "ca"
    stop.set()
    await keeping
    stored = api.named(SECRETS, "ns", "schedule")["data"]
    (certificate,) = certificates_in(base64.b64decode(stored["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "vreplica-schedule.ns.svc" in names.get_values_for_type(x509.DNSName)
    published = api.named(CONFIGMAPS, "callers", "ca")["data"]["ca.crt"]
    assert published.encode() == base64.b64decode(stored["ca.crt"])
    assert before.items() <= api.objects.items()


async def test_with_files_of_somebody_elses_no_secret_and_no_ca_bundle_is_written(
    unused_tcp_port: int, tmp_path: Path
):
    bundle = await CertificateManager(
        DirectoryStore(tmp_path), ("localhost",), now=time.time
    ).ensure()
    ca_bundle = base64.b64encode(bundle.ca_pem).decode()
    api = installed()
    for resource, path in ((MUTATING_WEBHOOKS, "/mutate"), (VALIDATING_WEBHOOKS, "/validate")):
        api.put(
            resource,
            a_configuration(
                path, annotations={"cert-manager.io/inject-ca-from": "a/b"}, caBundle=ca_bundle
            ),
        )
    settings = Settings(
        host="127.0.0.1",
        port=unused_tcp_port,
        cert_files=(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")),
    )
    stop = asyncio.Event()
    running = asyncio.create_task(Webhook(settings, api).run(stop))
    trusted = ssl.create_default_context(cadata=bundle.ca_pem.decode())
    async with aiohttp.ClientSession() as client:
        metrics = await _once_it_listens(
            client, f"https://localhost:{unused_tcp_port}/metrics", trusted
        )
    stop.set()
    await running
    end = bundle.expiry()["serving"]
    name = "vreplica_webhook_certificate_expiry_timestamp_seconds"
    (line,) = (each for each in metrics.splitlines() if each.startswith(name))
    assert line.split()[0] == f'{name}{{certificate="serving"}}'
    assert float(line.split()[1]) == end
    assert "vreplica_webhook_upkeep_failures_total 0.0" in metrics
    assert api.writes == 0


async def _once_it_listens(client: aiohttp.ClientSession, url: str, trusted: ssl.SSLContext) -> str:
    for _ in range(200):
        try:
            async with client.get(url, ssl=trusted) as response:
                return await response.text()
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.01)
    raise AssertionError("it does not listen")


@pytest.mark.looptime
async def test_an_api_server_that_never_answers_ends_the_start_after_a_limit():
    class Down(ObjectsApi):
        tries = 0

        async def get(self, *args, **kwargs):
            self.tries += 1
            raise OutcomeUnknown(0, "", "connection refused")

        async def list_page(self, *args, **kwargs):
            raise OutcomeUnknown(0, "", "connection refused")

    api = Down()
    with pytest.raises(ExceptionGroup) as raised:
        await Webhook(Settings(secret=("ns", "certificate")), api).run(asyncio.Event())
    assert isinstance(raised.value.exceptions[0], CertificateError)
    assert api.tries == upkeep.START_ATTEMPTS_MAX


@pytest.mark.looptime
async def test_a_stop_while_waiting_for_a_certificate_is_obeyed_at_once():
    class Down(ObjectsApi):
        async def get(self, *args, **kwargs):
            raise OutcomeUnknown(0, "", "connection refused")

    stop = asyncio.Event()
    running = asyncio.create_task(Webhook(Settings(secret=("ns", "certificate")), Down()).run(stop))
    await asyncio.sleep(upkeep.RETRY_PERIOD_S * 1.5)
    stop.set()
    started = asyncio.get_running_loop().time()
    await running
    assert asyncio.get_running_loop().time() - started < 0.1
