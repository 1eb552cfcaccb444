import asyncio
import base64
import ssl

import aiohttp
import orjson
import pytest

from extender.kube.api import (
    ADAPTERPOOLS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    VPODS,
    OutcomeUnknown,
)
from tests.webhook.builders import ObjectsApi, a_pod, a_pool_object, a_vpod_object, review
from tests.webhook.test_registration import a_configuration
from webhook import cli
from webhook.certs import CertificateError
from webhook.cli import Webhook
from webhook.settings import Settings


def installed() -> ObjectsApi:
    api = ObjectsApi()
    api.put(MUTATING_WEBHOOKS, a_configuration("/mutate"))
    api.put(VALIDATING_WEBHOOKS, a_configuration("/validate"))
    api.put(ADAPTERPOOLS, a_pool_object())
    api.put(VPODS, a_vpod_object(placements={"dispatcher-1": 3}))
    return api


async def test_from_nothing_to_a_verified_answer_and_a_clean_stop(unused_tcp_port):
    api, stop, url = installed(), asyncio.Event(), f"https://localhost:{unused_tcp_port}"
    settings = Settings(host="127.0.0.1", port=unused_tcp_port, secret=("ns", "certificate"), url=url)
    running = asyncio.create_task(Webhook(settings, api).run(stop))
    for _ in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await api.patches.get()
    configuration = api.named(MUTATING_WEBHOOKS, "", "vreplica-scheduler")
    client_config = configuration["webhooks"][0]["clientConfig"]
    assert client_config["url"] == f"{url}/mutate"
    # The way the API server calls it: by the URL, trusting the caBundle and nothing else.
    trusted = ssl.create_default_context(cadata=base64.b64decode(client_config["caBundle"]).decode())
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
    assert api.named(SECRETS, "ns", "certificate")["type"] == "kubernetes.io/tls"


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
    assert api.tries == cli.START_ATTEMPTS_MAX


@pytest.mark.looptime
async def test_a_stop_while_waiting_for_a_certificate_is_obeyed_at_once():
    class Down(ObjectsApi):
        async def get(self, *args, **kwargs):
            raise OutcomeUnknown(0, "", "connection refused")

    stop = asyncio.Event()
    running = asyncio.create_task(Webhook(Settings(secret=("ns", "certificate")), Down()).run(stop))
    await asyncio.sleep(cli.RETRY_PERIOD_S * 1.5)
    stop.set()
    started = asyncio.get_running_loop().time()
    await running
    assert asyncio.get_running_loop().time() - started < 0.1
