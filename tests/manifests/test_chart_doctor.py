"""``vreplica doctor`` finds what the chart renders under other names: all is well, and a missing
object is told by its name.
"""

from typing import Any

import pytest

from extender.cli.doctor.checks.names import InstallationNames
from extender.cli.doctor.checks.verdict import CheckResult, Verdict
from extender.cli.doctor.examine import examine
from extender.cli.doctor.fetch import fetch
from extender.cli.terminal.cluster_access import OpenCluster
from extender.kube.api import ListPage, NotFound
from tests.cli.doctor.scene import NOW_S, NS, Obj, Scene, a_bundle, named, stamp, text_of
from tests.manifests.chart import Values, objects, render

pytestmark = pytest.mark.usefixtures("needs_helm")

NAMESPACE = "orders-system"
PLURALS = {
    "Deployment": "deployments",
    "Lease": "leases",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Secret": "secrets",
    "Service": "services",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


class Installed:
    """An API server with the objects of one rendering, whose programs run, and a pool of it.
    ``account``: the one that may evict, as ``namespace/name``.
    """

    server = "https://stand-in"

    def __init__(
        self, values: Values, *, account: str, release: str = "vreplica-scheduler"
    ) -> None:
        self.account = account
        self.listed: dict[str, list[Obj]] = {plural: [] for plural in PLURALS.values()}
        for obj in objects(render(values, namespace=NAMESPACE, release=release)):
            if plural := PLURALS.get(obj["kind"]):
                self.listed[plural].append(obj)
        self.listed["endpointslices"] = [_endpoints(obj) for obj in self.listed["services"]]
        scene = Scene()
        for plural in ("customresourcedefinitions", "namespaces", "nodes", "adapterpools"):
            self.listed[plural] = scene.items(plural)
        for plural in ("statefulsets", "pods", "vpods"):
            self.listed[plural] = scene.items(plural)
        for pool in self.listed["adapterpools"]:
            del pool["spec"]["handoff"]  # the chart's listener for adapters is off
        self._run()

    def _run(self) -> None:
        """What running programs fill in."""
        bundle = a_bundle(NOW_S)
        for deployment in self.listed["deployments"]:
            deployment["status"] = {"readyReplicas": deployment["spec"]["replicas"]}
        for lease in self.listed["leases"]:
            lease["spec"] = {"holderIdentity": "one", "renewTime": stamp(1)}
        for secret in self.listed["secrets"]:
            secret["data"] = {"tls.crt": text_of(bundle.cert_pem)}
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for registration in self.listed[plural]:
                for hook in registration["webhooks"]:
                    hook["clientConfig"]["caBundle"] = text_of(bundle.ca_pem)

    def bound_by(self, scheduler: str) -> None:
        for pod in self.listed["pods"]:
            pod["spec"]["schedulerName"] = scheduler

    def without(self, plural: str, name: str) -> None:
        left = [obj for obj in self.listed[plural] if obj["metadata"]["name"] != name]
        assert len(left) == len(self.listed[plural]) - 1
        self.listed[plural] = left

    async def server_version(self) -> Obj:
        return {"gitVersion": "v1.36.3"}

    async def list_page(
        self, resource: Any, options: Any, *, limit: int, continue_token: str
    ) -> ListPage:
        items = self.listed.get(resource.plural, [])
        where = options.namespace
        return ListPage(
            [obj for obj in items if not where or obj["metadata"].get("namespace") == where], "1"
        )

    async def get(self, resource: Any, namespace: str, name: str) -> Obj:
        for obj in self.listed[resource.plural]:
            if (obj["metadata"]["namespace"], obj["metadata"]["name"]) == (namespace, name):
                return obj
        raise NotFound(404, "NotFound", name)

    async def review_access(self, obj: Obj) -> Obj:
        user = f"system:serviceaccount:{self.account.replace('/', ':')}"
        return {"status": {"allowed": obj["spec"]["user"] == user}}

    async def results(self, name: str) -> dict[str, CheckResult]:
        cluster = OpenCluster(
            self,  # type: ignore[arg-type]
            "default",
            self.server,
            self.server_version,
            self.review_access,
        )
        names = InstallationNames(name)
        facts = await fetch(cluster, namespace=NAMESPACE, names=names, now_s=NOW_S)
        return {one.check.name: one.result for one in examine(facts)}


def _endpoints(service: Obj) -> Obj:
    name = service["metadata"]["name"]
    found = named(f"{name}-1", NAMESPACE, endpoints=[{"addresses": ["10.0.0.1"], "conditions": {}}])
    found["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    return found


def wrong(results: dict[str, CheckResult]) -> dict[str, tuple[str, ...]]:
    return {
        name: (one.summary, *one.evidence)
        for name, one in results.items()
        if one.verdict not in {Verdict.OK, Verdict.SKIPPED}
    }


OVERRIDE = {"fullnameOverride": "orders"}
ACCOUNT = f"{NAMESPACE}/orders"
DEPLOYMENT = {"kubeScheduler": {"mode": "deployment"}, "certManager": {"enabled": True}}
MINE = {"extender": {"serviceAccount": {"name": "central"}}}
BUCKETS = {"config": {"leaderElection": {"buckets": 3}}}


@pytest.mark.parametrize(
    ("values", "account"),
    [
        pytest.param({}, ACCOUNT, id="beside a kube-scheduler"),
        pytest.param(MINE, f"{NAMESPACE}/central", id="an account with a name of its own"),
        pytest.param(BUCKETS, ACCOUNT, id="buckets"),
        pytest.param({"config": {"pools": {"namespaces": [NS]}}}, ACCOUNT, id="namespaces"),
    ],
)
async def test_an_installation_with_another_name_is_found_well(values: Values, account: str):
    installed = Installed({**OVERRIDE, **values}, account=account)
    installed.bound_by("orders")
    assert wrong(await installed.results("orders")) == {}


async def test_a_name_that_follows_the_release_is_found():
    installed = Installed(
        {"nameOverride": "vreplicas"}, account=f"{NAMESPACE}/prod-vreplicas", release="prod"
    )
    installed.bound_by("prod-vreplicas")
    assert wrong(await installed.results("prod-vreplicas")) == {}


async def test_without_a_kube_scheduler_beside_it_the_service_has_the_pods_account():
    installed = Installed({**OVERRIDE, **DEPLOYMENT}, account=ACCOUNT)
    results = await installed.results("orders")
    assert results["descheduling"].verdict is Verdict.OK
    assert "Secret orders-system/orders-webhook-tls is not there" in " ".join(
        results["webhook-certificate"].evidence
    ), "cert-manager makes it"


async def test_a_scheduler_with_a_name_of_its_own_may_bind_adapter_pods():
    values = {**OVERRIDE, "kubeScheduler": {"schedulerName": "theirs"}}
    installed = Installed(values, account=ACCOUNT)
    installed.bound_by("theirs")
    assert wrong(await installed.results("orders")) == {}


@pytest.mark.parametrize(
    ("plural", "name", "check", "says"),
    [
        (
            "deployments",
            "orders",
            "descheduling",
            "no Deployment orders-system/orders says which account it has",
        ),
        (
            "deployments",
            "orders-webhook",
            "deployments",
            "orders-system/orders-webhook is not there",
        ),
        (
            "deployments",
            "orders-webhook-upkeep",
            "deployments",
            "orders-system/orders-webhook-upkeep is not there",
        ),
        ("leases", "orders", "leader", "no Lease orders-system/orders"),
        (
            "validatingadmissionpolicies",
            "orders-statuses",
            "admission-policies",
            "ValidatingAdmissionPolicy orders-statuses is not there",
        ),
        (
            "mutatingwebhookconfigurations",
            "orders",
            "webhook-registration",
            "no MutatingWebhookConfiguration orders",
        ),
        (
            "services",
            "orders-webhook",
            "webhook-endpoints",
            "Service orders-system/orders-webhook is not there",
        ),
        (
            "secrets",
            "orders-webhook-certificate",
            "webhook-certificate",
            "Secret orders-system/orders-webhook-certificate is not there",
        ),
    ],
)
async def test_an_object_that_is_missing_is_told_by_its_name(
    plural: str, name: str, check: str, says: str
):
    installed = Installed(OVERRIDE, account=ACCOUNT)
    installed.without(plural, name)
    found = wrong(await installed.results("orders"))
    assert says in " ".join(found[check])


async def test_whoever_looks_for_the_default_names_is_told_the_options_for_this_one():
    results = await Installed(OVERRIDE, account=ACCOUNT).results("vreplica-scheduler")
    assert results["leader"].verdict is Verdict.ERROR
    assert "--name orders --namespace orders-system" in results["leader"].fix
