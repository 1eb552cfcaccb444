import asyncio
import base64
import copy
from collections.abc import Collection

import pytest

from extender.kube.api import (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Forbidden,
    Invalid,
    Obj,
    Resource,
)
from tests.webhook.authorities import fingerprints, steps_from
from tests.webhook.builders import ObjectsApi, patched
from webhook.publication import ATTEMPTS_MAX, PUBLISHED_BEFORE_USE_S
from webhook.registration import RESOURCES, Registration, registration_ops
from webhook.rotation import Bundle

NAME = "vreplica-scheduler"
FIRST, SECOND, THIRD = (steps_from(None)[1] for _ in range(3))
INJECTED = {"cert-manager.io/inject-ca-from": "vreplica-system/vreplica-webhook"}


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def a_configuration(
    *paths: str, annotations: dict[str, str] | None = None, **client_config: str
) -> Obj:
    service = {"namespace": "vreplica-system", "name": "vreplica-webhook", "port": 443}
    hooks = [
        {
            "name": f"w{path}.x",
            "clientConfig": {"service": {**service, "path": path}, **client_config},
        }
        for path in paths
    ]
    metadata: Obj = {"name": NAME, "resourceVersion": "1"}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "webhooks": hooks}


def installed(annotations: dict[str, str] | None = None, **client_config: str) -> ObjectsApi:
    api = ObjectsApi()
    api.put(MUTATING_WEBHOOKS, a_configuration("/mutate", annotations=annotations, **client_config))
    api.put(
        VALIDATING_WEBHOOKS,
        a_configuration("/validate", "/validate", annotations=annotations, **client_config),
    )
    return api


def client_configs(api: ObjectsApi, resource: Resource) -> list[Obj]:
    return [hook["clientConfig"] for hook in api.named(resource, "", NAME)["webhooks"]]


class Stored:
    """Certificates whose bundle is what a test says it is; None: somebody else's."""

    def __init__(self, bundle: Bundle | None, served_pem: bytes = b"") -> None:
        self.bundle = bundle
        self.served_pem = served_pem or (bundle.cert_pem if bundle else b"")
        self.may_sign: list[Collection[bytes]] = []

    async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:
        await asyncio.sleep(0)
        self.may_sign.append(published)
        return self.bundle


def registration(
    api: ObjectsApi, *, url: str = "", clock: list[float] | None = None
) -> Registration:
    at = clock or [0.0]
    return Registration(api, url=url, monotonic=lambda: at[0])


async def register(
    api: ObjectsApi, bundle: Bundle | None = FIRST, *, url: str = "", served: bytes = b""
) -> list[str]:
    return await registration(api, url=url).reconcile(Stored(bundle, served))  # type: ignore[arg-type]


async def test_the_ca_bundle_is_put_beside_the_service_of_every_webhook():
    api = installed()
    assert await register(api) == []
    for config in client_configs(api, VALIDATING_WEBHOOKS):
        assert config["caBundle"] == encoded(FIRST.ca_pem)
        assert config["service"]["path"] == "/validate"


async def test_what_is_right_already_is_not_written_again():
    api = installed()
    await register(api)
    writes = api.writes
    assert await register(api) == []
    assert api.writes == writes


async def test_a_development_url_replaces_the_service_and_keeps_each_path():
    api = installed()
    await register(api, url="https://127.0.0.1:8443/")
    assert client_configs(api, MUTATING_WEBHOOKS) == [
        {"url": "https://127.0.0.1:8443/mutate", "caBundle": encoded(FIRST.ca_pem)}
    ]
    await register(api, SECOND, url="https://127.0.0.1:9443")
    assert client_configs(api, MUTATING_WEBHOOKS)[0]["url"] == "https://127.0.0.1:9443/mutate"


async def test_an_installation_with_a_name_of_its_own_writes_its_own_configurations_only():
    api = installed()
    for resource in RESOURCES:
        configuration = copy.deepcopy(api.named(resource, "", NAME))
        configuration["metadata"]["name"] = "blue"
        api.put(resource, configuration)
    blue = Registration(api, name="blue", monotonic=lambda: 0.0)
    assert await blue.reconcile(Stored(FIRST)) == []  # type: ignore[arg-type]
    for resource in RESOURCES:
        (config, *_) = api.named(resource, "", "blue")["webhooks"]
        assert config["clientConfig"]["caBundle"] == encoded(FIRST.ca_pem)
        assert "caBundle" not in client_configs(api, resource)[0]


async def test_configurations_that_do_not_exist_are_named():
    assert await register(ObjectsApi()) == [
        f"no {kind} vreplica-scheduler yet: apply the manifests"
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ]


def test_a_patch_for_a_configuration_that_has_changed_is_refused():
    read = a_configuration("/mutate", "/validate")
    changed = copy.deepcopy(read)
    changed["webhooks"].reverse()
    changed["metadata"]["resourceVersion"] = "2"
    with pytest.raises(Invalid):
        patched(changed, registration_ops(read, FIRST.ca_pem, "https://x:1"))


class Contended(ObjectsApi):
    """Somebody else changes a configuration between our read and our patch, so many times."""

    left = 0

    async def patch(self, resource, *args, **kwargs):
        if self.left and resource is MUTATING_WEBHOOKS:
            self.left -= 1
            self.put(resource, self.named(resource, "", NAME))
        return await super().patch(resource, *args, **kwargs)


@pytest.mark.parametrize(("times", "works"), [(ATTEMPTS_MAX - 1, True), (ATTEMPTS_MAX, False)])
async def test_changes_by_others_are_met_with_a_limited_number_of_tries(times: int, works: bool):
    api = Contended()
    api.objects, api.left, api.version = installed().objects, times, 2
    if works:
        assert await register(api) == []
        assert client_configs(api, MUTATING_WEBHOOKS)[0]["caBundle"] == encoded(FIRST.ca_pem)
    else:
        with pytest.raises(Invalid):
            await register(api)


def test_a_configuration_without_webhooks_or_client_configs_is_tolerated():
    assert registration_ops({}, FIRST.ca_pem, "") == []
    op = registration_ops({"webhooks": [{"name": "a"}]}, FIRST.ca_pem, "")[1]
    assert op["value"] == {"caBundle": encoded(FIRST.ca_pem)}


async def test_a_replica_that_is_behind_never_overwrites_a_newer_ca_bundle():
    """It has read the old bundle when the other one stores and publishes the new one."""
    api, store = installed(), Stored(FIRST)
    await register(api, FIRST)
    unset = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    await api.patch(MUTATING_WEBHOOKS, "", NAME, unset)

    class Behind(Stored):
        async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:
            read = store.bundle
            if read is FIRST:
                store.bundle = SECOND
                await register(api, SECOND)
            return read

    await registration(api).reconcile(Behind(FIRST))  # type: ignore[arg-type]
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for config in client_configs(api, resource):
            assert config["caBundle"] == encoded(SECOND.ca_pem)


async def refused(resource: Resource, *_: object) -> Obj:
    raise Forbidden(403, "Forbidden", f"{resource.plural} is forbidden")


class TestWhatIsPublished:
    async def test_an_authority_may_sign_once_it_has_been_in_every_ca_bundle_for_ten_minutes(self):
        api, clock, store = installed(), [1000.0], Stored(FIRST)
        ours = registration(api, clock=clock)
        await ours.reconcile(store)  # type: ignore[arg-type]
        clock[0] += PUBLISHED_BEFORE_USE_S - 1
        assert ours.published() == frozenset()
        clock[0] += 1
        await ours.reconcile(store)  # type: ignore[arg-type]
        assert store.may_sign == [frozenset(), fingerprints(FIRST.ca_pem)]

    async def test_one_that_has_been_taken_out_of_one_of_them_begins_anew(self):
        api, clock, store = installed(), [1000.0], Stored(FIRST)
        ours = registration(api, clock=clock)
        await ours.reconcile(store)  # type: ignore[arg-type]
        clock[0] += PUBLISHED_BEFORE_USE_S
        await register(api, SECOND)
        await ours.reconcile(store)  # type: ignore[arg-type]
        assert store.may_sign[-1] == frozenset()
        assert ours.published() == frozenset()

    async def test_while_the_registration_cannot_be_read_no_authority_may_begin_to_sign(
        self, monkeypatch
    ):
        api, clock, store = installed(), [1000.0], Stored(FIRST)
        ours = registration(api, clock=clock)
        await ours.reconcile(store)  # type: ignore[arg-type]
        clock[0] += PUBLISHED_BEFORE_USE_S
        with monkeypatch.context() as patch:
            patch.setattr(api, "get", refused)
            (mutating, _) = await ours.reconcile(store)  # type: ignore[arg-type]
        assert "mutatingwebhookconfigurations is forbidden" in mutating
        assert list(store.may_sign[-1]) == []
        await ours.reconcile(store)  # type: ignore[arg-type]
        assert store.may_sign[-1] == fingerprints(FIRST.ca_pem)

    async def test_where_nothing_is_registered_nothing_is_published(self):
        clock = [1000.0]
        ours = registration(ObjectsApi(), clock=clock)
        await ours.reconcile(Stored(FIRST))  # type: ignore[arg-type]
        clock[0] += PUBLISHED_BEFORE_USE_S
        assert ours.published() == frozenset()


class TestSomebodyElsesCertificate:
    async def test_its_ca_bundle_is_left_alone(self):
        api = installed(INJECTED, caBundle=encoded(FIRST.ca_pem))
        assert await register(api, None, served=FIRST.cert_pem) == []
        assert api.writes == 0

    async def test_a_development_url_is_written_all_the_same(self):
        api = installed(INJECTED, caBundle=encoded(FIRST.ca_pem))
        assert await register(api, None, url="https://127.0.0.1:1", served=FIRST.cert_pem) == []
        assert client_configs(api, MUTATING_WEBHOOKS) == [
            {"url": "https://127.0.0.1:1/mutate", "caBundle": encoded(FIRST.ca_pem)}
        ]

    async def test_until_cert_manager_has_filled_it_in_that_is_told(self):
        (mutating, _) = await register(installed(INJECTED), None, served=FIRST.cert_pem)
        assert mutating == (
            "MutatingWebhookConfiguration vreplica-scheduler: cert-manager has not filled in its "
            "caBundle yet "
            "(annotation cert-manager.io/inject-ca-from)"
        )

    async def test_a_ca_bundle_of_another_authority_is_told(self):
        api = installed(caBundle=encoded(SECOND.ca_pem))
        (mutating, _) = await register(api, None, served=FIRST.cert_pem)
        assert "does not hold the authority of the certificate that is served" in mutating

    async def test_an_annotation_beside_a_certificate_of_our_own_is_told_and_respected(self):
        api = installed(INJECTED, caBundle=encoded(SECOND.ca_pem))
        (mutating, _) = await register(api)
        assert "remove the annotation, or serve cert-manager's with --tls-cert-file" in mutating
        assert api.writes == 0
