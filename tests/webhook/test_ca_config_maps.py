"""ConfigMaps that clients read the authorities in: who mounts one, or copies it in time, always has
the authority that signs.
"""

import asyncio
from datetime import UTC, datetime

import pytest

from extender.kube.api import CONFIGMAPS, SECRETS, Forbidden, Obj
from tests.webhook.authorities import DAY, HOSTS, NOW
from tests.webhook.builders import ObjectsApi
from webhook.ca_config_maps import COPIED_WITHIN, CAConfigMaps
from webhook.certs import CertificateManager
from webhook.rotation import Bundle
from webhook.stores import SecretStore
from webhook.x509 import certificates_in, serving_problem

YEARS = 6
NAME = "vreplica-schedule-ca"


class OneForbidden(ObjectsApi):
    """Nobody may read or write ConfigMaps of this namespace."""

    forbidden = ""

    async def get(self, resource, namespace, name, *, subresource=""):
        if namespace == self.forbidden:
            raise Forbidden(403, "Forbidden", f"configmaps {name!r} is forbidden")
        return await super().get(resource, namespace, name, subresource=subresource)


class Keeper:
    """The upkeep of a Secret and of ConfigMaps in ``namespaces``, with a clock."""

    def __init__(self, *namespaces: str, data: Obj | None = None) -> None:
        self.now_s = NOW
        self.api = OneForbidden()
        for each in namespaces:
            obj: Obj = {"metadata": {"namespace": each, "name": NAME}}
            self.api.put(CONFIGMAPS, obj | ({} if data is None else {"data": data}))
        self._store = SecretStore(self.api, "ns", "c")
        self.certificates = CertificateManager(self._store, HOSTS, now=lambda: self.now_s)
        self.config_maps = self.restarted(*namespaces)

    def restarted(self, *namespaces: str) -> CAConfigMaps:
        names = [(each, NAME) for each in namespaces]
        clock = lambda: self.now_s  # noqa: E731
        return CAConfigMaps(self.api, names, monotonic=clock, now=clock)

    async def round(self) -> Bundle:
        assert await self.config_maps.reconcile(self.certificates) == []
        return await self.stored()

    async def stored(self) -> Bundle:
        stored = await self._store.load()
        assert stored.bundle is not None
        return stored.bundle

    def data(self, namespace: str) -> Obj:
        found: Obj = self.api.named(CONFIGMAPS, namespace, NAME).get("data", {})
        return found

    def accepts(self, ca_pem: bytes, bundle: Bundle) -> bool:
        now = datetime.fromtimestamp(self.now_s, UTC)
        return not serving_problem(bundle.serving, certificates_in(ca_pem), HOSTS, now)


@pytest.mark.timeout(60)
async def test_who_mounts_one_or_copies_it_in_time_verifies_every_certificate_of_six_years():
    keeper, authorities = Keeper("callers"), set()
    mounted = copy = (await keeper.round()).ca_pem
    age_days = 0
    for _ in range(YEARS * 365):
        keeper.now_s += DAY
        age_days += 1
        bundle = await keeper.round()
        authorities.add(bundle.ca_key_pem)
        # What was mounted yesterday, and a copy that is as old as is allowed.
        assert keeper.accepts(mounted, bundle)
        assert keeper.accepts(copy, bundle)
        mounted = keeper.data("callers")["ca.crt"].encode()
        if age_days == COPIED_WITHIN.days:
            copy, age_days = mounted, 0
    assert len(authorities) > YEARS / 2


async def test_every_namespace_gets_the_authorities_and_nothing_else_of_the_secret():
    keeper = Keeper("a", "b")
    bundle = await keeper.round()
    for namespace in ("a", "b"):
        assert keeper.data(namespace) == {"ca.crt": bundle.ca_pem.decode()}
    assert {resource for resource, *_ in keeper.api.objects} == {SECRETS.plural, CONFIGMAPS.plural}


async def test_other_keys_stay_and_what_somebody_has_put_there_is_put_right():
    keeper = Keeper("a", data={"ca.crt": "mine", "theirs": "x"})
    bundle = await keeper.round()
    assert keeper.data("a") == {"ca.crt": bundle.ca_pem.decode(), "theirs": "x"}


async def test_what_is_right_already_is_not_written_again():
    keeper = Keeper("a")
    await keeper.round()
    writes = keeper.api.writes
    await keeper.round()
    assert keeper.api.writes == writes


@pytest.mark.parametrize("how", ["gone", "forbidden"])
async def test_a_namespace_that_cannot_be_written_is_named_and_the_others_get_theirs(how: str):
    keeper = Keeper("a", "b")
    if how == "gone":
        await keeper.api.delete(CONFIGMAPS, "a", NAME)
    else:
        keeper.api.forbidden = "a"
    (problem,) = await keeper.config_maps.reconcile(keeper.certificates)
    assert f"ConfigMap a/{NAME}" in problem
    assert keeper.data("b") == {"ca.crt": (await keeper.stored()).ca_pem.decode()}


async def test_while_one_namespace_lacks_it_the_next_authority_does_not_sign():
    keeper = Keeper("a", "b")
    first = await keeper.round()
    await keeper.api.delete(CONFIGMAPS, "a", NAME)
    for _ in range(600):  # the first authority is due after 550 days
        keeper.now_s += DAY
        await keeper.config_maps.reconcile(keeper.certificates)
    assert (await keeper.stored()).ca_key_pem == first.ca_key_pem
    keeper.api.put(CONFIGMAPS, {"metadata": {"namespace": "a", "name": NAME}})
    for _ in range(2):
        await keeper.round()
        keeper.now_s += DAY
    assert (await keeper.round()).ca_key_pem != first.ca_key_pem


async def test_a_process_that_is_behind_never_overwrites_newer_authorities():
    keeper = Keeper("a")
    await keeper.round()
    behind, loaded, may_go_on = keeper.restarted("a"), asyncio.Event(), asyncio.Event()
    ensure = keeper.certificates.ensure

    class Slow:
        served_pem = b""

        async def ensure(self, published=()):
            bundle = await ensure(published)
            if not loaded.is_set():
                loaded.set()
                await may_go_on.wait()
            return bundle

    await keeper.api.patch(CONFIGMAPS, "a", NAME, [{"op": "remove", "path": "/data"}])
    slow = asyncio.create_task(behind.reconcile(Slow()))  # type: ignore[arg-type]
    await loaded.wait()
    keeper.now_s += 190 * DAY  # the next authority is replaced by a fresh one
    newer = await keeper.round()
    may_go_on.set()
    assert await slow == []
    assert keeper.data("a") == {"ca.crt": newer.ca_pem.decode()}
