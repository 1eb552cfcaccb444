import base64
import copy

import pytest

from extender.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Invalid, Obj, Resource
from tests.webhook.builders import ObjectsApi, patched
from webhook.registration import ATTEMPTS_MAX, register, registration_ops

CA = b"-----BEGIN CERTIFICATE-----"
BUNDLE = base64.b64encode(CA).decode()


def a_configuration(*paths: str) -> Obj:
    service = {"namespace": "vreplica-system", "name": "vreplica-webhook", "port": 443}
    hooks = [{"name": f"w{path}.x", "clientConfig": {"service": {**service, "path": path}}} for path in paths]
    return {"metadata": {"name": "vreplica-scheduler"}, "webhooks": hooks}


def installed() -> ObjectsApi:
    api = ObjectsApi()
    api.put(MUTATING_WEBHOOKS, a_configuration("/mutate"))
    api.put(VALIDATING_WEBHOOKS, a_configuration("/validate", "/validate"))
    return api


def client_configs(api: ObjectsApi, resource: Resource) -> list[Obj]:
    return [hook["clientConfig"] for hook in api.named(resource, "", "vreplica-scheduler")["webhooks"]]


async def test_the_ca_bundle_is_put_beside_the_service_of_every_webhook():
    api = installed()
    assert await register(api, CA) == []
    for config in client_configs(api, VALIDATING_WEBHOOKS):
        assert config["caBundle"] == BUNDLE
        assert config["service"]["path"] == "/validate"


async def test_what_is_right_already_is_not_written_again():
    api = installed()
    await register(api, CA)
    writes = api.writes
    assert await register(api, CA) == []
    assert api.writes == writes


async def test_a_development_url_replaces_the_service_and_keeps_each_path():
    api = installed()
    await register(api, CA, url="https://127.0.0.1:8443/")
    assert client_configs(api, MUTATING_WEBHOOKS) == [
        {"url": "https://127.0.0.1:8443/mutate", "caBundle": BUNDLE}
    ]
    await register(api, b"new", url="https://127.0.0.1:9443")
    assert client_configs(api, MUTATING_WEBHOOKS)[0]["url"] == "https://127.0.0.1:9443/mutate"


async def test_configurations_that_do_not_exist_are_named():
    assert await register(ObjectsApi(), CA) == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]


def test_a_patch_for_another_order_of_webhooks_is_refused():
    read = a_configuration("/mutate", "/validate")
    reordered = copy.deepcopy(read)
    reordered["webhooks"].reverse()
    with pytest.raises(Invalid):
        patched(reordered, registration_ops(read, CA, "https://x:1"))


@pytest.mark.parametrize(("refusals", "works"), [(ATTEMPTS_MAX - 1, True), (ATTEMPTS_MAX, False)])
async def test_changes_by_others_are_met_with_a_limited_number_of_tries(refusals, works):
    class Contended(ObjectsApi):
        left = refusals

        async def patch(self, *args, **kwargs):
            if self.left:
                self.left -= 1
                raise Invalid(422, "Invalid", "test failed")
            return await super().patch(*args, **kwargs)

    api = Contended()
    api.objects = installed().objects
    if works:
        assert await register(api, CA) == []
        assert client_configs(api, MUTATING_WEBHOOKS)[0]["caBundle"] == BUNDLE
    else:
        with pytest.raises(Invalid):
            await register(api, CA)


def test_a_configuration_without_webhooks_or_client_configs_is_tolerated():
    assert registration_ops({}, CA, "") == []
    assert registration_ops({"webhooks": [{"name": "a"}]}, CA, "")[1]["value"] == {"caBundle": BUNDLE}
