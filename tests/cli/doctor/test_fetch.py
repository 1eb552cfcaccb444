"""How the facts are read: over HTTP from an embedded cluster, and what a kind that may not be read
does to the rest.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extender.cli.doctor import fetch as fetching
from extender.cli.doctor.checks import CHECKS
from extender.cli.doctor.checks.facts import NOT_READ, Facts, MayEvict
from extender.cli.doctor.checks.names import DEFAULT_NAMES, InstallationNames
from extender.cli.doctor.checks.verdict import Verdict
from extender.cli.doctor.examine import examine
from extender.cli.doctor.fetch import (
    DEPLOYMENTS,
    ask_replica,
    certificate_at,
    fetch,
    node_in_short,
)
from extender.cli.main import main
from extender.cli.terminal import cluster_access
from extender.cli.terminal.cluster_access import ClusterAccess, OpenCluster, open_cluster
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    STATEFULSETS,
    VPODS,
    Forbidden,
    ListPage,
    NotFound,
    Obj,
    OutcomeUnknown,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.embedded import node_object, stateful_set_object
from extender.lab.http.server import HttpApiServer
from extender.model.decode import node_from
from extender.model.names import OWN_NAMESPACE
from extender.model.reading import mapping
from tests.cli.doctor.scene import NS, POOL, Scene, a_bundle, a_pod, a_vpod, text_of
from tests.simulation.cluster_scene import a_cluster


@asynccontextmanager
async def a_face(folder: Path) -> AsyncIterator[tuple[Cluster, str]]:
    """An embedded cluster with our kinds, over HTTP; the path of its kubeconfig."""
    cluster = a_cluster()
    for crd in Scene.crds():
        await cluster.create(CRDS, "", crd)
    for name in (NS, "tenant", OWN_NAMESPACE):
        await cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
    server = HttpApiServer(cluster)
    await server.start()
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(server.kubeconfig()))
    try:
        yield cluster, str(kubeconfig)
    finally:
        await server.stop()


async def populate(cluster: Cluster) -> None:
    """A pool with a pod whose ledger has less than the vpod's status."""
    scene = Scene()
    await cluster.create(ADAPTERPOOLS, NS, scene.first("adapterpools"))
    await cluster.create(
        STATEFULSETS, NS, stateful_set_object(POOL, namespace=NS, replicas=2, pool=POOL)
    )
    pod = a_pod(0, {"tenant/a": 1})
    pod["spec"]["containers"] = [{"name": "c", "image": "x:1"}]
    await cluster.create(PODS, NS, pod)
    vpod = a_vpod("a", 3, {0: 3})
    await cluster.create(VPODS, "tenant", vpod)
    status = {"status": {"placements": [{"podName": f"{POOL}-0", "vreplicas": 3}]}}
    stored = await cluster.get(VPODS, "tenant", "a")
    await cluster.update(VPODS, "tenant", "a", {**stored, **status}, subresource="status")


async def test_an_embedded_cluster_is_examined_over_http(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "SETTLE_S", 0.0)
    async with a_face(tmp_path) as (cluster, kubeconfig):
        await populate(cluster)
        async with open_cluster(ClusterAccess(kubeconfig)) as found:
            facts = await fetch(found, namespace=OWN_NAMESPACE, now_s=0.0)
    results = {one.check.name: one.result for one in examine(facts)}
    assert results["crds"].verdict is Verdict.OK
    assert results["leader"].verdict is Verdict.ERROR
    assert results["ledger-drift"].verdict is Verdict.ERROR
    assert "publishes 3 on dispatcher-0, the ledger of knative-eventing/dispatcher-0 has 1" in str(
        results["ledger-drift"].evidence
    )
    assert set(facts.again) == {"pods", "vpods"}, "looked at twice"


async def test_of_the_webhooks_secret_only_the_certificate_is_kept(tmp_path):
    bundle = a_bundle()
    async with a_face(tmp_path) as (cluster, kubeconfig):
        secret = {
            "metadata": {"name": DEFAULT_NAMES.certificate_secret},
            "data": {name: text_of(part) for name, part in bundle.files().items()},
        }
        await cluster.create(SECRETS, OWN_NAMESPACE, secret)
        async with open_cluster(ClusterAccess(kubeconfig)) as found:
            facts = await fetch(found, namespace=OWN_NAMESPACE, now_s=0.0)
    (kept,) = facts.of("secrets").items
    assert kept["data"] == {"tls.crt": text_of(bundle.cert_pem)}


class StandIn:
    """What ``fetch`` asks of an API server, out of memory; ``refused``: kinds, by plural, and with
    what.
    """

    server = "https://stand-in"

    def __init__(self, refused: dict[str, Exception], pages: int = 0) -> None:
        self.refused = refused
        self.pages = pages

    async def server_version(self) -> Obj:
        self._answer("version")
        return {"gitVersion": "v1.36.3"}

    async def list_page(
        self, resource: Any, options: Any, *, limit: int, continue_token: str
    ) -> ListPage:
        self._answer(resource.plural)
        if not self.pages:
            return ListPage([], "1")
        items: list[Obj] = [{"metadata": {"name": f"x{n}"}} for n in range(limit)]
        return ListPage(items, "1", "more")

    async def get(self, resource: Any, namespace: str, name: str) -> Obj:
        self._answer(resource.plural)
        raise NotFound(404, "NotFound", "no")

    async def review_access(self, _obj: Obj) -> Obj:
        raise NotFound(404, "NotFound", "no")

    def _answer(self, plural: str) -> None:
        if plural in self.refused:
            raise self.refused[plural]


async def facts_of(stand_in: StandIn, name: str = "vreplica-scheduler") -> Facts:
    cluster = OpenCluster(
        stand_in,  # type: ignore[arg-type]
        "default",
        stand_in.server,
        stand_in.server_version,
        stand_in.review_access,
    )
    return await fetch(cluster, namespace=OWN_NAMESPACE, names=InstallationNames(name), now_s=0.0)


async def test_what_is_forbidden_is_the_problem_of_that_kind_alone():
    refused = {
        "pods": Forbidden(403, "Forbidden", "pods is forbidden:\nno"),
        "secrets": Forbidden(403, "Forbidden", "no"),
        "endpointslices": NotFound(404, "NotFound", "x"),
        "version": Forbidden(403, "Forbidden", "no"),
    }
    facts = await facts_of(StandIn(dict(refused)))
    assert facts.of("pods").problem == "forbidden: pods is forbidden: no"
    assert facts.of("secrets").problem == "forbidden: no"
    assert facts.of("endpointslices").problem == "is not served by this API server"
    assert facts.version is None
    assert facts.of("vpods").problem == ""


class Reviewing(StandIn):
    """With a pool that has opted in, and the service's Deployment. ``answer``: status of a
    SubjectAccessReview, or what is raised.
    """

    def __init__(
        self, answer: Obj | Exception, refused: dict[str, Exception] | None = None
    ) -> None:
        super().__init__(refused or {})
        self.answer = answer
        self.asked: list[Obj] = []

    async def list_page(
        self, resource: Any, options: Any, *, limit: int, continue_token: str
    ) -> ListPage:
        self._answer(resource.plural)
        scene = Scene()
        items = scene.items(resource.plural) if resource in {ADAPTERPOOLS, DEPLOYMENTS} else []
        return ListPage(list(items), "1")

    async def review_access(self, obj: Obj) -> Obj:
        self.asked.append(obj["spec"])
        if isinstance(self.answer, Exception):
            raise self.answer
        return {**obj, "status": self.answer}


@pytest.mark.parametrize(
    ("answer", "may"),
    [
        pytest.param({"allowed": True}, MayEvict(allowed=True), id="allowed"),
        pytest.param({"allowed": False}, MayEvict(allowed=False), id="not allowed"),
        pytest.param({}, MayEvict(allowed=False), id="no opinion"),
        pytest.param(
            Forbidden(403, "Forbidden", "no"),
            MayEvict(problem="403 Forbidden: no"),
            id="this user may not ask",
        ),
        pytest.param(
            NotFound(404, "NotFound", "x"), MayEvict(allowed=True), id="a server without RBAC"
        ),
    ],
)
async def test_whether_the_service_may_evict_is_asked_of_the_api_server(answer, may):
    api = Reviewing(answer)
    facts = await facts_of(api)
    assert facts.may_evict == {NS: may}
    (spec,) = api.asked
    assert spec["user"] == f"system:serviceaccount:{OWN_NAMESPACE}:vreplica-scheduler"
    assert spec["resourceAttributes"] == {
        "namespace": NS,
        "verb": "create",
        "resource": "pods",
        "subresource": "eviction",
    }


async def test_without_the_services_deployment_whether_it_may_evict_is_unknown_and_told():
    api = Reviewing({"allowed": True})
    facts = await facts_of(api, "blue")
    problem = f"no Deployment {OWN_NAMESPACE}/blue says which account it has"
    assert facts.may_evict == {NS: MayEvict(problem=problem)}
    assert not api.asked
    (found,) = [one.result for one in examine(facts) if one.check.name == "descheduling"]
    assert found.verdict is Verdict.UNKNOWN
    assert problem in found.summary


async def test_deployments_that_may_not_be_read_are_why_it_is_unknown():
    refused: dict[str, Exception] = {"deployments": Forbidden(403, "Forbidden", "no")}
    facts = await facts_of(Reviewing({"allowed": True}, refused))
    assert facts.may_evict == {NS: MayEvict(problem="Deployments could not be read: forbidden: no")}


async def test_beyond_a_number_of_namespaces_nobody_is_asked_and_that_is_told(monkeypatch):
    monkeypatch.setattr(fetching, "REVIEWS_MAX", 0)
    facts = await facts_of(Reviewing({"allowed": True}))
    assert facts.may_evict == {NS: MayEvict(problem="doctor asks about 0 namespaces only")}


async def test_every_kind_that_a_check_needs_is_read():
    facts = await facts_of(StandIn({}))
    unread = [
        f"{check.name}: {plural}"
        for check in CHECKS
        for plural in check.needs
        if facts.of(plural).problem == NOT_READ.problem
    ]
    assert not unread


async def test_of_a_node_only_what_says_that_it_is_ready_is_kept(tmp_path):
    node = node_object("node-0", "zone-a")
    async with a_face(tmp_path) as (cluster, kubeconfig):
        await cluster.create(NODES, "", node)
        async with open_cluster(ClusterAccess(kubeconfig)) as found:
            facts = await fetch(found, namespace=OWN_NAMESPACE, now_s=0.0)
    (kept,) = facts.of("nodes").items
    assert mapping(kept, "metadata") == {"name": "node-0"}
    assert node_from(kept).ready is node_from(node).ready
    lost = {
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "images": [{"names": ["x"]}],
        }
    }
    assert node_in_short({**node, **lost}) == {
        "metadata": {"name": "node-0"},
        "spec": {"taints": []},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }


async def test_an_api_server_that_is_gone_ends_the_examination():
    with pytest.raises(OutcomeUnknown):
        await facts_of(StandIn({"pods": OutcomeUnknown(0, "ConnectionFailed", "x")}))


async def test_lists_are_bounded_and_what_was_cut_is_told(monkeypatch):
    monkeypatch.setattr(fetching, "OBJECTS_MAX", 12)
    monkeypatch.setattr(cluster_access, "PAGE_OBJECTS", 5)
    facts = await facts_of(StandIn({}, pages=9))
    assert (len(facts.of("vpods").items), facts.of("vpods").truncated) == (12, True)
    result = next(one.result for one in examine(facts) if one.check.name == "rights")
    assert "vpods: more than 12, the rest was not looked at" in result.evidence


async def test_a_replica_is_asked_for_what_it_says_of_itself():
    async def ready(_request: web.Request) -> web.Response:
        return web.Response(text="caches not synced: pods\n", status=503)

    async def state(request: web.Request) -> web.Response:
        assert request.query["pool"] == "-/-", "of no pool: a large state is not asked for"
        return web.json_response(
            {"leader": "one", "configuration": {"needsRestart": ["server.port"]}}
        )

    app = web.Application()
    app.router.add_get("/readyz", ready)
    app.router.add_get("/state.json", state)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        replica = await ask_replica(ReplicaAccess(url))
    finally:
        await runner.cleanup()
    assert (replica.problem, replica.ready, replica.state["leader"]) == (
        "",
        "caches not synced: pods",
        "one",
    )
    assert "cannot be asked" in (await ask_replica(ReplicaAccess(url))).problem


async def test_the_certificate_of_a_webhook_that_is_called_by_url_is_looked_at(tmp_path):
    bundle = a_bundle()
    for name, part in bundle.files().items():
        (tmp_path / name).write_bytes(part)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mutate"
        shown = await certificate_at(url)
    assert (shown.pem.strip(), shown.problem) == (bundle.cert_pem.strip(), "")
    assert "could not be asked" in (await certificate_at(url)).problem


def test_the_command_refuses_a_server_that_is_no_url(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--server", "ftp://localhost:10261"])
    assert ended.value.code == 2
    assert "is not a URL such as http://127.0.0.1:10261" in capsys.readouterr().err
