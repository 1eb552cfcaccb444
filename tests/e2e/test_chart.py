"""The Helm chart: what it renders, what it refuses, and that the API server takes it; kustomize's
base and components are the same.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from extender.config.model import LOOPBACK, Mode
from extender.kube.api import Obj
from tests.e2e.real import RealBackend
from tests.manifests.__main__ import differences
from tests.manifests.chart import CHART, RenderFailed, Rendering, Values, objects, render, run_helm
from tests.manifests.generate import BASE_VALUES, CERT_MANAGER, EXISTING, OWN, _merged, generated
from tests.manifests.kustomize import comparable, kustomized
from tests.manifests.tool import kubectl
from tests.monitoring.dashboards import DASHBOARDS
from tests.monitoring.files import groups
from tests.supply.pins import images_in
from tests.support.configs import config_from
from webhook.settings import parser, settings_from

NAMESPACE = "vreplica-chart"
MONITORED: Values = {
    "metrics": {
        "enabled": True,
        "serviceMonitor": {"enabled": True, "labels": {"release": "p"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "p"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "adapters"}},
    }
}
SHADOW: Values = {"config": {"mode": "shadow"}}
KNATIVE: Values = {"sources": {"knative": True}}
LARGE: Values = {
    "config": {
        "leaderElection": {"buckets": 4},
        "filter": {"narrowTo": 16},
        "clientConnection": {"qps": 1000000},
        "profiles": [{"name": "nightly"}],
    },
    "sources": {
        "knative": True,
        "kinds": [{"group": "example.com", "resource": "things", "writeStatus": False}],
    },
    "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}]},
    "webhook": {"replicas": 1, "tolerations": [{"operator": "Exists"}]},
}
VALUE_SETS = [
    pytest.param({}, id="defaults"),
    pytest.param(OWN, id="own Deployment"),
    pytest.param(_merged(EXISTING, CERT_MANAGER), id="existing scheduler, cert-manager"),
    pytest.param(_merged(OWN, CERT_MANAGER, MONITORED), id="everything of others"),
    pytest.param(SHADOW, id="shadow"),
    pytest.param(_merged(SHADOW, MONITORED), id="shadow, monitored"),
    pytest.param(LARGE, id="large"),
    pytest.param({"config": {"pools": {"namespaces": ["a", "b"]}}}, id="pools of two namespaces"),
]
FOREIGN_KINDS = [
    ("cert-manager.io", "v1", "Certificate"),
    ("cert-manager.io", "v1", "Issuer"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor"),
    ("monitoring.coreos.com", "v1", "PrometheusRule"),
]


pytestmark = pytest.mark.usefixtures("_helm_and_kubectl")


def alerts_of(rendering: Rendering) -> set[str]:
    (rules,) = [obj for obj in objects(rendering) if obj["kind"] == "PrometheusRule"]
    return {rule["alert"] for group in rules["spec"]["groups"] for rule in group["rules"]}


def unselected(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of a PrometheusRule as they are without the namespace in each selector."""
    selected = re.compile(r'{namespace="[^"]+"}|(?<={)namespace="[^"]+", ')
    return [
        {
            **group,
            "rules": [{**one, "expr": selected.sub("", one["expr"])} for one in group["rules"]],
        }
        for group in rule["spec"]["groups"]
    ]


class TestGenerated:
    """kustomize's files are the chart's."""

    def test_the_committed_files_are_what_the_chart_makes_of_its_values(self):
        assert differences(generated(render)) == [], "run `make manifests`"

    @pytest.mark.parametrize(
        ("components", "values"),
        [
            pytest.param((), {}, id="base"),
            pytest.param(("https",), EXISTING, id="https"),
            pytest.param(("kube-scheduler",), OWN, id="kube-scheduler"),
            pytest.param(("knative",), KNATIVE, id="knative"),
            pytest.param(("cert-manager",), CERT_MANAGER, id="cert-manager"),
            pytest.param(("https", "knative"), _merged(EXISTING, KNATIVE), id="two"),
            pytest.param(
                ("https", "cert-manager", "cert-manager-https"),
                _merged(EXISTING, CERT_MANAGER),
                id="three",
            ),
            pytest.param(
                ("kube-scheduler", "cert-manager", "cert-manager-https"),
                _merged(OWN, CERT_MANAGER),
                id="own, three",
            ),
        ],
    )
    def test_kustomize_makes_of_base_and_components_what_helm_makes_of_the_values(
        self, components: Sequence[str], values: Values
    ):
        by_kustomize = comparable(kustomized(components))
        by_helm = comparable(objects(render(_merged(BASE_VALUES, values))))
        assert len(by_helm) > 20
        assert by_kustomize == by_helm


class TestImages:
    """Ours is the user's to name; kube-scheduler's tag is named with the digest that is known of
    it.
    """

    NAME = "registry.k8s.io/kube-scheduler"
    KNOWN = yaml.safe_load((CHART / "values.yaml").read_text())["kubeScheduler"]["image"]["digests"]
    DIGEST = f"sha256:{'ab' * 32}"

    @pytest.mark.parametrize(
        ("image", "expected"),
        [
            pytest.param({}, f"{NAME}:v1.36.3@{KNOWN['v1.36.3']}", id="the cluster's"),
            pytest.param({"tag": "v1.36.5"}, f"{NAME}:v1.36.5@{KNOWN['v1.36.5']}", id="another"),
            pytest.param({"tag": "v1.30.1"}, f"{NAME}:v1.30.1", id="unknown"),
            pytest.param(
                {"tag": "v1", "digests": {"v1": DIGEST}}, f"{NAME}:v1@{DIGEST}", id="added"
            ),
            pytest.param({"digests": None}, f"{NAME}:v1.36.3", id="none"),
            pytest.param({"digest": DIGEST}, f"{NAME}@{DIGEST}", id="chosen"),
            pytest.param(
                {"repository": "r.example/s"}, "r.example/s:v1.36.3", id="another registry's"
            ),
        ],
    )
    def test_kube_scheduler(self, image: Values, expected: str):
        assert self.images({"kubeScheduler": {"image": image}}) == {
            "vreplica-scheduler:0.1.0",
            expected,
        }

    def test_ours(self):
        image = {"repository": "r.example/v", "digest": self.DIGEST}
        assert f"r.example/v@{self.DIGEST}" in self.images({"image": image})

    def images(self, values: Values) -> set[str]:
        rendered = objects(render(values, hooks=True))
        return {image for obj in rendered for image in images_in(obj)}


class TestValues:
    """What the schema lets through."""

    def test_helm_finds_nothing_to_complain_about(self):
        assert "0 chart(s) failed" in run_helm("lint", "--strict", CHART)

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            pytest.param({"bogus": 1}, "bogus", id="unknown"),
            pytest.param({"extender": {"replica": 3}}, "replica", id="unknown in the depth"),
            pytest.param(
                {"config": {"leaderElection": {"bucket": 4}}}, "bucket", id="unknown setting"
            ),
            pytest.param(
                {"config": {"server": {"host": "0.0.0.0"}}},
                "host",
                id="a setting that follows from others",
            ),
            pytest.param({"config": {"mode": "shadwo"}}, "mode", id="no such mode"),
            pytest.param(
                {"kubeScheduler": {"mode": "side"}}, "kubeScheduler/mode", id="no such place"
            ),
            pytest.param({"extender": {"replicas": 0}}, "extender/replicas", id="none"),
            pytest.param({"image": {"digest": "latest"}}, "image/digest", id="no digest"),
            pytest.param(
                {"kubeScheduler": {"image": {"digests": {"v1.36.3": "latest"}}}},
                "digests/v1.36.3",
                id="no digest of a tag",
            ),
            pytest.param({"image": {"digests": {}}}, "digests", id="our tags have no digests"),
            pytest.param(
                {"metrics": {"serviceMonitor": {"enabled": True}}},
                "metrics/enabled",
                id="nothing to scrape",
            ),
            pytest.param(
                {"metrics": {"prometheusRule": {"enabled": True}}},
                "metrics/enabled",
                id="rules on nothing",
            ),
            pytest.param(
                {
                    "kubeScheduler": {"schedulerName": "mine"},
                    "config": {"schedulerNames": ["yours"]},
                },
                "config.schedulerNames: add mine",
                id="pods that nobody would bind",
            ),
            pytest.param(
                {"config": {"leaderElection": {"leaderElect": False}}},
                "leaderElect",
                id="two that always lead",
            ),
            pytest.param(
                {"certManager": {"renewBefore": "9000h"}},
                "certManager.renewBefore",
                id="renewed before it is made",
            ),
            pytest.param(
                {"priorityClass": {"name": "system-cluster-critical"}},
                "priorityClass.name",
                id="Kubernetes' own",
            ),
        ],
    )
    def test_values_that_mean_nothing_are_refused_by_name(self, values: Values, told: str):
        with pytest.raises(RenderFailed, match=told):
            render(values)

    @pytest.mark.parametrize(
        "values",
        [
            *VALUE_SETS,
            pytest.param({"kubeScheduler": {"schedulerName": "mine"}}, id="another schedulerName"),
            pytest.param(
                _merged(OWN, {"kubeScheduler": {"schedulerName": "mine"}}), id="another, of its own"
            ),
            pytest.param({"config": {"server": {"deadlineSeconds": 5.5}}}, id="slow verbs"),
            pytest.param(
                {"kubeScheduler": {"schedulerName": "default-scheduler"}}, id="default-scheduler"
            ),
        ],
    )
    def test_our_own_linter_finds_no_error_in_what_is_rendered(
        self, values: Values, tmp_path: Path, capsys
    ):
        files = []
        for obj in objects(render(values)):
            if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-config"):
                for name, text in obj["data"].items():
                    if name != "kubeconfig.yaml":
                        files.append(tmp_path / name)
                        files[-1].write_text(text)
        assert main(["config", "check", *map(str, files)]) == 0, capsys.readouterr().out

    def test_alerts_on_what_is_not_installed_are_left_out(self):
        rule = {"metrics": {"enabled": True, "prometheusRule": {"enabled": True}}}
        everything = alerts_of(render(rule))
        assert everything == {rule["alert"] for group in groups() for rule in group["rules"]}
        shadow = everything - alerts_of(render(_merged(rule, SHADOW)))
        no_webhook = everything - alerts_of(render(_merged(rule, {"webhook": {"enabled": False}})))
        assert "VReplicaNoLeader" in shadow - no_webhook
        assert {
            "VReplicaWebhookDown",
            "VReplicaWebhookBypassed",
            "VReplicaWebhookRefuses",
        } <= no_webhook & shadow
        assert "VReplicaSchedulerDown" not in shadow

    @pytest.mark.parametrize("where", ["extender", "webhook"])
    def test_variables_of_a_container_are_set(self, where: str):
        variable = {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}
        names = {"extender": "vreplica-scheduler", "webhook": "vreplica-webhook"}
        for obj in objects(render({where: {"env": [variable]}})):
            if obj["kind"] == "Deployment":
                first, *others = obj["spec"]["template"]["spec"]["containers"]
                assert first.get("env") == (
                    [variable] if obj["metadata"]["name"] == names[where] else None
                )
                assert not any("env" in container for container in others)

    @pytest.mark.parametrize("where", ["extender", "webhook"])
    def test_on_the_nodes_network_a_replica_goes_before_its_successor_comes(self, where: str):
        names = {"extender": "vreplica-scheduler", "webhook": "vreplica-webhook"}
        for obj in objects(render({where: {"hostNetwork": True}})):
            if obj["kind"] == "Deployment":
                name = obj["metadata"]["name"]
                on_node = name == names[where]
                pod, update = obj["spec"]["template"]["spec"], obj["spec"].get("strategy", {})
                # Where pods have no network, what looks after the webhook's certificate needs the
                # node's, and no port of it.
                without_port = where == "extender" and name == "vreplica-webhook-upkeep"
                assert pod.get("hostNetwork", False) is (on_node or without_port)
                assert (
                    update.get("rollingUpdate") == {"maxUnavailable": 1, "maxSurge": 0}
                ) is on_node

    @pytest.mark.parametrize("where", ["extender", "webhook"])
    def test_with_pods_on_the_nodes_network_the_namespace_enforces_no_standard(self, where: str):
        values: Values = {"namespace": {"create": True}, where: {"hostNetwork": True}}
        (namespace,) = [obj for obj in objects(render(values)) if obj["kind"] == "Namespace"]
        labels = namespace["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "privileged"

    def test_the_pod_of_helm_test_goes_where_the_extender_goes(self):
        placed = {"nodeSelector": {"pool": "system"}, "tolerations": [{"operator": "Exists"}]}
        rendered = render({"extender": placed}, hooks=True)
        (pod,) = [obj for obj in objects(rendered) if obj["kind"] == "Pod"]
        assert {name: pod["spec"][name] for name in placed} == placed

    def test_alerts_link_to_where_the_runbooks_can_be_read(self):
        rule = {"enabled": True, "runbooksUrl": "https://docs.example/runbooks"}
        found = objects(render({"metrics": {"enabled": True, "prometheusRule": rule}}))
        (made,) = [obj for obj in found if obj["kind"] == "PrometheusRule"]
        alerts = [alert for group in made["spec"]["groups"] for alert in group["rules"]]
        assert {alert["annotations"]["runbook_url"] for alert in alerts} == {
            f"https://docs.example/runbooks#{alert['alert'].lower()}" for alert in alerts
        }
        assert not any("runbook" in alert["annotations"] for alert in alerts)

    def test_the_second_kube_scheduler_is_as_old_as_the_cluster(self):
        (found,) = [
            line for line in render({})["scheduler.yaml"].splitlines() if "/kube-scheduler:" in line
        ]
        assert found.partition("@")[0].endswith(":v1.36.3")

    def test_alerts_and_dashboards_are_those_of_the_monitoring_folder(self):
        found = objects(render(MONITORED))
        (rule,) = [obj for obj in found if obj["kind"] == "PrometheusRule"]
        assert rule["metadata"]["labels"]["release"] == "p"
        assert unselected(rule) == groups()
        maps = [obj for obj in found if obj["metadata"]["name"].startswith("vreplica-dashboard-")]
        assert all(obj["metadata"]["labels"]["grafana_dashboard"] == "1" for obj in maps)
        assert all(obj["metadata"]["annotations"]["grafana_folder"] == "adapters" for obj in maps)
        shown = {name: json.loads(text) for obj in maps for name, text in obj["data"].items()}
        assert shown == {
            f"{name}.json": dashboard.to_json() for name, dashboard in DASHBOARDS.items()
        }

    def test_another_namespace_is_meant_everywhere(self):
        text = "".join(render({}, namespace="elsewhere", hooks=True).values())
        assert "vreplica-system" not in text
        assert "system:serviceaccount:elsewhere:vreplica-scheduler" in text

    def test_shadow_mode_has_no_right_to_write_and_nothing_that_would(self):
        found = objects(render(SHADOW))
        verbs = {
            verb
            for obj in found
            for rule in obj.get("rules", ())
            if obj["metadata"]["name"].startswith("vreplica-scheduler")
            for verb in rule["verbs"]
        }
        assert verbs == {"get", "list", "watch"}
        assert not {obj["kind"] for obj in found} & {
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "Lease",
            "Secret",
        }

    @pytest.mark.parametrize("values", VALUE_SETS)
    def test_our_programs_take_the_arguments_and_files_that_they_are_given(
        self, values: Values, tmp_path: Path
    ):
        found = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects(render(values))}
        text = found["ConfigMap", "vreplica-scheduler-config"]["data"]["service-config.yaml"]
        config = config_from(yaml.safe_load(text))
        assert (config.server.host in LOOPBACK) is not bool(config.server.tls.allowed_clients)
        webhook = found.get(("Deployment", "vreplica-webhook"))
        assert (webhook is None) is (config.mode is Mode.SHADOW)
        if webhook is not None:
            file = tmp_path / "service-config.yaml"
            file.write_text(text)
            command = webhook["spec"]["template"]["spec"]["containers"][0]["command"]
            given = [
                str(word).replace("/etc/vreplica/service-config.yaml", str(file))
                for word in command[1:]
            ]
            settings = settings_from(parser().parse_args(given))
            certified = bool(values.get("certManager", {}).get("enabled"))
            assert (settings.cert_files is not None, settings.secret is None) == (
                certified,
                certified,
            )
            if certified:
                assert ("Certificate", "vreplica-webhook") in found

    @pytest.mark.parametrize("values", VALUE_SETS)
    def test_the_tests_pod_has_no_token_and_asks_only_what_is_there(self, values: Values):
        ready = render(values, hooks=True).get("ready.yaml", "")
        services = {
            obj["metadata"]["name"] for obj in objects(render(values)) if obj["kind"] == "Service"
        }
        for pod in filter(None, yaml.safe_load_all(ready)):
            assert pod["spec"]["automountServiceAccountToken"] is False
            command = pod["spec"]["containers"][0]["command"]
            hosts = {
                url.partition("://")[2].partition(".")[0]
                for url in command
                if "://" in url and "\n" not in url
            }
            assert hosts
            assert hosts <= services


def foreign_definition(group: str, version: str, kind: str) -> Obj:
    """A stand-in for an operator's CRD: the kind is served, its fields are its operator's
    to check.
    """
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def kubectl_apply(real: RealBackend, directory: Path, text: str, *options: str) -> str:
    """``kubectl apply`` of a text, whoever has applied what is there; AssertionError with what it
    said.
    """
    file = directory / "rendered.yaml"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        kubectl(),
        f"--kubeconfig={real.kubeconfig}",
        f"--cache-dir={directory / 'cache'}",
        "apply",
        "--server-side",
        "--force-conflicts",
        f"--filename={file}",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60.0):
        said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    return said


class TestOnTheApiServer:
    """A server-side dry run reads every field, the real apply every rule."""

    @pytest.mark.parametrize("values", VALUE_SETS)
    async def test_every_rendering_is_taken(
        self, real: RealBackend, tmp_path: Path, values: Values
    ):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": labels},
        }
        definitions = [foreign_definition(*row) for row in FOREIGN_KINDS]
        await real.apply([namespace, *definitions])
        rendering = render(values, namespace=NAMESPACE, hooks=True)
        text = "\n---\n".join(rendering.values())
        said = await kubectl_apply(real, tmp_path, text, "--dry-run=server", "--validate=strict")
        assert "Warning" not in said
        assert len(said.splitlines()) == len(objects(rendering))
        without_pods = "\n---\n".join(
            text for name, text in rendering.items() if name != "ready.yaml"
        )
        await kubectl_apply(real, tmp_path, without_pods, "--validate=strict")
        for pod in pods_of(objects(rendering)):
            answer = await real.raw.request(
                "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod, query={"dryRun": "All"}
            )
            assert answer.status == 201, answer.message

    async def test_on_the_nodes_network_the_webhook_is_no_restricted_pod_any_more(
        self, real: RealBackend, tmp_path: Path
    ):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": labels},
        }
        await real.apply([namespace])
        rendering = render(
            {"webhook": {"hostNetwork": True}, "priorityClass": {"create": False, "name": ""}},
            namespace=NAMESPACE,
        )
        (pod,) = [
            pod
            for pod in pods_of(objects(rendering))
            if pod["metadata"]["name"] == "vreplica-webhook"
        ]
        answer = await real.raw.request(
            "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod, query={"dryRun": "All"}
        )
        assert (answer.status, "hostNetwork" in answer.message) == (403, True)


def pods_of(found: Sequence[Mapping[str, Any]]) -> Iterator[Obj]:
    """The pods that Deployments would make, and those that are there as such."""
    for obj in found:
        if obj["kind"] == "Pod":
            yield dict(obj)
        elif obj["kind"] == "Deployment":
            template = obj["spec"]["template"]
            metadata = {"name": obj["metadata"]["name"], "labels": template["metadata"]["labels"]}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": template["spec"],
            }
