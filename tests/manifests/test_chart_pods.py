"""What the chart's values add to its pods and Deployments, as charts of the field have it."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.manifests.chart import RenderFailed, Values, documents, objects, render

WORKLOADS = {
    "extender": "vreplica-scheduler",
    "webhook": "vreplica-webhook",
    "kubeScheduler": "vreplica-kube-scheduler",
}
IN_ITS_OWN_PODS: Values = {
    "certManager": {"enabled": True},
    "kubeScheduler": {"mode": "deployment"},
}
HARD = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}


pytestmark = pytest.mark.usefixtures("needs_helm")


def merged(first: Values, second: Values) -> Values:
    return {
        key: {**first.get(key, {}), **second.get(key, {})} if isinstance(value, dict) else value
        for key, value in {**first, **second}.items()
    }


def deployments(values: Values) -> dict[str, dict[str, Any]]:
    return {
        obj["metadata"]["name"]: obj["spec"]
        for obj in objects(render(values))
        if obj["kind"] == "Deployment"
    }


def containers_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All containers of a Deployment's pods."""
    pod = spec["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def deployment_of(workload: str, given: Values) -> dict[str, Any]:
    """The spec of a workload's Deployment, with these values of the workload."""
    return deployments(merged(IN_ITS_OWN_PODS, {workload: given}))[WORKLOADS[workload]]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_labels_arguments_and_volumes_are_added_to_what_a_pod_has(workload: str):
    before = deployment_of(workload, {})["template"]
    after = deployment_of(
        workload,
        {
            "podLabels": {"team": "platform"},
            "extraArgs": ["--more=1"],
            "extraVolumes": [{"name": "ca", "configMap": {"name": "corporate-ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/corporate-ca"}],
        },
    )["template"]
    labels = after["metadata"]["labels"]
    assert labels == {**before["metadata"]["labels"], "team": "platform"}
    had, has = before["spec"]["containers"][0], after["spec"]["containers"][0]
    arguments = [*has["command"], *has.get("args", [])]
    assert arguments == [*had["command"], "--more=1"]
    assert has["volumeMounts"][:-1] == had["volumeMounts"]
    assert has["volumeMounts"][-1] == {"name": "ca", "mountPath": "/etc/corporate-ca"}
    assert after["spec"]["volumes"][:-1] == before["spec"]["volumes"]
    assert after["spec"]["volumes"][-1]["configMap"] == {"name": "corporate-ca"}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_repeats_a_label_or_annotation_of_ours_has_no_effect_and_is_written_once(
    workload: str,
):
    ours = deployment_of(workload, {})["template"]["metadata"]["labels"]
    theirs = {**dict.fromkeys(ours, "mine"), "team": "platform"}
    given = {"podLabels": theirs, "podAnnotations": {"checksum/config": "mine", "note": "why"}}
    texts = render(merged(IN_ITS_OWN_PODS, {workload: given})).values()
    found = [
        yaml.safe_load(document)["spec"]["template"]["metadata"]
        for text in texts
        for document in documents(text)
        if f"kind: Deployment\nmetadata:\n  name: {WORKLOADS[workload]}\n" in document
    ]
    assert not [text for text in texts if "mine" in text]
    (metadata,) = found
    assert metadata["labels"] == {**ours, "team": "platform"}
    assert metadata["annotations"].keys() == {"checksum/config", "note"}


def test_a_kube_scheduler_beside_the_extender_has_its_own_additions():
    given = {
        "extraArgs": ["--v=4"],
        "extraVolumes": [{"name": "policy", "configMap": {"name": "policy"}}],
        "extraVolumeMounts": [{"name": "policy", "mountPath": "/etc/policy"}],
    }
    spec = deployments({"kubeScheduler": given})["vreplica-scheduler"]["template"]["spec"]
    extender, scheduler = spec["containers"]
    assert scheduler["command"][-1] == "--v=4"
    assert scheduler["volumeMounts"][-1]["name"] == spec["volumes"][-1]["name"] == "policy"
    assert "args" not in extender
    assert "policy" not in {mount["name"] for mount in extender["volumeMounts"]}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_strategy_is_taken_as_it_is_given(workload: str):
    assert deployment_of(workload, {"strategy": {"type": "Recreate"}})["strategy"] == {
        "type": "Recreate"
    }


@pytest.mark.parametrize("limit", [0, 3])
def test_every_deployment_keeps_as_many_old_replica_sets(limit: int):
    found = deployments({"revisionHistoryLimit": limit})
    assert {spec["revisionHistoryLimit"] for spec in found.values()} == {limit}


def test_annotations_of_service_accounts():
    given = {"serviceAccount": {"annotations": {"example.com/role": "reader"}}}
    found = {
        obj["metadata"]["name"]: obj["metadata"].get("annotations")
        for obj in objects(render({"extender": given}))
        if obj["kind"] == "ServiceAccount"
    }
    assert found["vreplica-scheduler"] == {"example.com/role": "reader"}
    assert found["vreplica-webhook"] is None


def contexts(values: Values) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of all pods, and of all containers."""
    specs = deployments(values).values()
    return (
        [spec["template"]["spec"]["securityContext"] for spec in specs],
        [each["securityContext"] for spec in specs for each in containers_of(spec)],
    )


def test_security_contexts_go_over_the_restricted_ones_and_keep_what_they_do_not_name():
    pods, containers = contexts(
        {
            "podSecurityContext": {"fsGroup": 2000, "supplementalGroups": [4000]},
            "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
        }
    )
    assert {(pod["fsGroup"], pod["runAsUser"], pod["runAsNonRoot"]) for pod in pods} == {
        (2000, 65532, True)
    }
    assert all(pod["supplementalGroups"] == [4000] for pod in pods)
    capabilities = {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    assert all(each == {**HARD, "capabilities": capabilities} for each in containers)


def test_by_default_every_container_is_as_the_restricted_standard_asks():
    pods, containers = contexts({})
    assert all(each == {**HARD, "capabilities": {"drop": ["ALL"]}} for each in containers)
    assert all(pod["seccompProfile"] == {"type": "RuntimeDefault"} for pod in pods)


def images(values: Values) -> set[str]:
    return {each["image"] for spec in deployments(values).values() for each in containers_of(spec)}


@pytest.mark.parametrize(
    ("repository", "pulled"),
    [
        pytest.param("vreplica-scheduler", "mirror.example/vreplica-scheduler", id="no registry"),
        pytest.param("team/vreplica", "mirror.example/team/vreplica", id="a path"),
        pytest.param("registry.example/team/v", "mirror.example/team/v", id="a registry"),
        pytest.param("registry:5000/v", "mirror.example/v", id="a registry with a port"),
        pytest.param("localhost/v", "mirror.example/v", id="localhost"),
    ],
)
def test_all_images_come_from_the_registry_that_is_given_for_all(repository: str, pulled: str):
    values = {
        "global": {"imageRegistry": "mirror.example"},
        "image": {"repository": repository, "tag": "1"},
        "kubeScheduler": {"image": {"tag": "v1.37.2"}},
    }
    assert images(values) == {f"{pulled}:1", "mirror.example/kube-scheduler:v1.37.2"}


def pull_secrets(values: Values) -> set[str]:
    """The names of each pod's imagePullSecrets; also of the pod of ``helm test``."""
    pods = [
        obj["spec"] if obj["kind"] == "Pod" else obj["spec"]["template"]["spec"]
        for obj in objects(render(values, hooks=True))
        if obj["kind"] in {"Pod", "Deployment"}
    ]
    assert len(pods) > len(deployments(values))
    return {" ".join(each["name"] for each in pod.get("imagePullSecrets", ())) for pod in pods}


def test_pull_secrets_of_both_places_are_named_once():
    values = {
        "imagePullSecrets": [{"name": "ours"}, {"name": "both"}],
        "global": {"imagePullSecrets": [{"name": "both"}, {"name": "theirs"}]},
    }
    assert pull_secrets(values) == {"ours both theirs"}


def test_a_pull_secret_may_be_its_name():
    values = {
        "imagePullSecrets": ["ours", {"name": "both"}],
        "global": {"imagePullSecrets": ["both", "theirs"]},
    }
    assert pull_secrets(values) == {"ours both theirs"}
    assert pull_secrets({}) == {""}


def volume(name: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": {}}


SIDECAR = {"mode": "sidecar", "extraVolumes": [volume("a")]}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"extender": {"extraArgs": "--one"}}, "extraArgs"),
        ({"webhook": {"extraVolumeMounts": [{"name": "no-path"}]}}, "extraVolumeMounts"),
        ({"extender": {"podLabels": {"n": 1}}}, "podLabels"),
        ({"revisionHistoryLimit": -1}, "revisionHistoryLimit"),
        ({"global": {"imagePullSecrets": ["Reg_Cred"]}}, "imagePullSecrets"),
        ({"imagePullSecrets": [{"name": "Reg_Cred"}]}, "imagePullSecrets"),
        ({"imagePullSecrets": [{"secret": "regcred"}]}, "imagePullSecrets"),
        ({"imagePullSecrets": [1]}, "imagePullSecrets"),
        ({"webhook": {"strategy": {"type": "Foo"}}}, "webhook.strategy.type"),
        ({"extender": {"strategy": {"types": "Recreate"}}}, "extender.strategy"),
        ({"extender": {"podLabels": {"vreplica.dev/pool": "p"}}}, "extender.podLabels: .* adapter"),
        ({"webhook": {"extraVolumes": [volume("a"), volume("a")]}}, "webhook.extraVolumes: a is"),
        (
            {"extender": {"extraVolumes": [volume("a")]}, "kubeScheduler": SIDECAR},
            "kubeScheduler.extraVolumes: a is",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(values: Values, path: str):
    with pytest.raises(RenderFailed, match=path):
        render(values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kubeScheduler": {"mode": "sidecar"}},
        {"certManager": {"enabled": True}},
        {"schedule": {"enabled": True, "allowedServiceAccounts": ["ns/a"]}},
    ],
)
def test_no_volume_of_yours_has_the_name_of_one_of_ours(values: Values):
    names = {
        own["name"]
        for obj in objects(render(values))
        if obj["kind"] == "Deployment"
        for own in obj["spec"]["template"]["spec"].get("volumes", ())
    }
    assert "tmp" in names
    for name in sorted(names):
        given = {**values, "webhook": {"extraVolumes": [volume(name)]}}
        with pytest.raises(RenderFailed, match=f"webhook.extraVolumes: {name} is a volume already"):
            render(given)


@pytest.mark.parametrize("strategy", [{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 1}}])
def test_a_strategy_of_kubernetes_is_taken(strategy: dict[str, Any]):
    values: Values = {
        "webhook": {"strategy": strategy, "extraVolumes": [volume("a")]},
        "extender": {"extraVolumes": [volume("a")]},
    }
    found = [one for one in objects(render(values)) if one["kind"] == "Deployment"]
    assert strategy in [one["spec"].get("strategy") for one in found]
