"""``vreplica config check``: every trap is found by its code, at its line, and what we ship has
none.
"""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.lint.codes import CODES
from extender.cli.lint.files import check_files
from extender.cli.main import main
from extender.lab.embedded import EVICTION_WEBHOOK

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests"
Edit = Callable[[Any], object]


def base(name: str) -> Any:
    return copy.deepcopy(list(yaml.safe_load_all((MANIFESTS / name).read_text())))


def codes_of(folder: Path, *documents: object, **more: object) -> list[str]:
    file = folder / "checked.yaml"
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    files = [str(file)]
    for name, document in more.items():
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        files.append(str(path))
    return sorted({one.code.code for one in check_files(files).findings})


def ours(document: Any) -> Any:
    return document["extenders"][0]


def put(**fields: object) -> Edit:
    return lambda document: ours(document).update(fields)


def drop(name: str) -> Edit:
    return lambda document: ours(document).pop(name)


def profile(**fields: object) -> Edit:
    return lambda document: document["profiles"][-1].update(fields)


def election(**fields: object) -> Edit:
    return lambda document: document["leaderElection"].update(fields)


def plugins(**points: object) -> Edit:
    return profile(plugins=points)


def off(*names: str) -> dict[str, object]:
    return {"disabled": [{"name": name} for name in names]}


def on(*names: str) -> dict[str, object]:
    return {"enabled": [{"name": name} for name in names]}


SCHEDULER = [
    pytest.param(lambda d: d.update(profile=[]), ["VS100"], id="VS100 an unknown field"),
    pytest.param(put(ignorabel=True), ["VS100"], id="VS100 an unknown field of the extender"),
    pytest.param(put(httpTimeout="5"), ["VS100"], id="VS100 a duration without its unit"),
    pytest.param(put(enableHttps=True), ["VS100"], id="VS100 as a Policy calls it"),
    pytest.param(lambda d: d.update(extenders=[]), ["VS101"], id="VS101 no extender"),
    pytest.param(put(ignorable=True), ["VS102"], id="VS102 ignorable with bind"),
    pytest.param(
        profile(schedulerName="default-scheduler"),
        ["VS104"],
        id="VS104 asked about everybody's pods",
    ),
    pytest.param(
        put(managedResources=[{"name": "vreplica.dev/slots"}]),
        ["VS105"],
        id="VS105 looked for on nodes",
    ),
    pytest.param(put(httpTimeout="3s"), ["VS106"], id="VS106 a timeout below our deadline"),
    pytest.param(put(httpTimeout="4000ms"), ["VS106"], id="VS106 a timeout that is our deadline"),
    pytest.param(drop("nodeCacheCapable"), ["VS108"], id="VS108 whole nodes"),
    pytest.param(profile(percentageOfNodesToScore=50), ["VS109"], id="VS109 a sample of the nodes"),
    pytest.param(
        lambda d: d["profiles"][-1].pop("percentageOfNodesToScore"),
        ["VS109"],
        id="VS109 by the size of the cluster",
    ),
    pytest.param(put(weight=0), ["VS110"], id="VS110 no weight"),
    pytest.param(drop("weight"), ["VS110"], id="VS110 a weight that is absent"),
    pytest.param(put(urlPrefix="http://127.0.0.1:10261"), ["VS111"], id="VS111 no path"),
    pytest.param(
        put(urlPrefix="http://127.0.0.1:10261/v1/filter"), ["VS111"], id="VS111 the verb is in it"
    ),
    pytest.param(put(urlPrefix="127.0.0.1:10261/v1"), ["VS111"], id="VS111 no scheme"),
    pytest.param(put(urlPrefix="http://127.0.0.1:x/v1"), ["VS111"], id="VS111 no port"),
    pytest.param(
        lambda d: d["extenders"].append({"urlPrefix": "http://other/x", "bindVerb": "bind"}),
        ["VS112"],
        id="VS112 two binders",
    ),
    pytest.param(put(enableHTTPS=True), ["VS113"], id="VS113 https in name only"),
    pytest.param(put(filterVerb="Filter"), ["VS114"], id="VS114 letter case"),
    pytest.param(put(prioritizeVerb="prioritise"), ["VS114"], id="VS114 misspelt"),
    pytest.param(profile(schedulerName="my-scheduler"), ["VS115"], id="VS115 another profile"),
    pytest.param(
        put(urlPrefix="http://vreplica-scheduler.vreplica-system.svc:10261/v1"),
        ["VS117"],
        id="VS117 plain http",
    ),
    pytest.param(drop("bindVerb"), ["VS119"], id="VS119 nobody binds"),
    pytest.param(drop("filterVerb"), ["VS119"], id="VS119 nobody filters"),
    pytest.param(drop("preemptVerb"), ["VS120"], id="VS120 preemption"),
    pytest.param(
        lambda d: d["leaderElection"].update(resourceName="vreplica-scheduler"),
        ["VS122"],
        id="VS122 our own Lease",
    ),
    pytest.param(
        lambda d: d.update(leaderElection={"leaderElect": True}),
        ["VS122"],
        id="VS122 the cluster's Lease",
    ),
    pytest.param(lambda d: d.update(parallelism=0), ["VS100"], id="VS100 no thread"),
    pytest.param(
        election(leaseDuration="10s"), ["VS100"], id="VS100 a lease no longer than its renewal"
    ),
    pytest.param(
        election(renewDeadline="15s"), ["VS100"], id="VS100 a renewal as long as the default lease"
    ),
    pytest.param(election(retryPeriod="9s"), ["VS100"], id="VS100 tries that come too late"),
    pytest.param(election(retryPeriod="-1s"), ["VS100"], id="VS100 a period below nothing"),
    pytest.param(election(retryPeriod="soon"), ["VS100"], id="VS100 no duration"),
    pytest.param(election(resourceLock="endpoints"), ["VS100"], id="VS100 a lock of old"),
    pytest.param(
        election(leaseDuration="1s", leaderElect=False), [], id="an election that is not held"
    ),
    pytest.param(election(leaseSeconds=3), ["VS100"], id="VS100 an unknown field of the election"),
    pytest.param(profile(plugin={}), ["VS100"], id="VS100 an unknown field of a profile"),
    pytest.param(plugins(filters={}), ["VS100"], id="VS100 an unknown extension point"),
    pytest.param(plugins(bind=off("*")), ["VS100"], id="VS100 nobody may bind"),
    pytest.param(plugins(bind=off("DefaultBinder")), ["VS100"], id="VS100 the only binder is off"),
    pytest.param(plugins(multiPoint=off("*")), ["VS100"], id="VS100 all plugins are off"),
    pytest.param(
        plugins(multiPoint={**off("*"), **on("PrioritySort", "DefaultBinder", "NodeName")}),
        [],
        id="all but three are off",
    ),
    pytest.param(
        plugins(bind={**off("*"), **on("DefaultBinder")}), [], id="one binder in place of all"
    ),
    pytest.param(
        plugins(score=on("NodeResourceFit")),
        ["VS123"],
        id="VS123 a typing error, or somebody's plugin",
    ),
    pytest.param(
        plugins(multiPoint={**off("*"), **on("Ours")}),
        ["VS123"],
        id="VS123 a plugin that may do everything",
    ),
]


def test_a_plugin_that_is_misspelt_is_told_with_the_nearest(tmp_path, capsys):
    (document,) = base("kube-scheduler/config.yaml")
    plugins(score=on("NodeResourceFit"))(document)
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(document))
    assert main(["config", "check", str(file)]) == 0
    assert "none of kube-scheduler's own; did you mean NodeResourcesFit?" in capsys.readouterr().out


@pytest.mark.parametrize(("edit", "found"), SCHEDULER)
def test_a_trap_in_kube_schedulers_configuration_is_found(tmp_path, edit, found):
    (document,) = base("kube-scheduler/config.yaml")
    edit(document)
    assert codes_of(tmp_path, document) == found


HTTPS = [
    pytest.param(lambda d: ours(d)["tlsConfig"].pop("caFile"), ["VS103"], id="VS103 no authority"),
    pytest.param(
        lambda d: ours(d)["tlsConfig"].update(insecure=True), ["VS103"], id="VS103 insecure"
    ),
    pytest.param(
        lambda d: ours(d)["tlsConfig"].pop("certFile"), ["VS116"], id="VS116 no client certificate"
    ),
    pytest.param(drop("tlsConfig"), ["VS103", "VS116"], id="neither"),
    pytest.param(drop("managedResources"), ["VS104"], id="VS104 beside the cluster's own profile"),
]


@pytest.mark.parametrize(("edit", "found"), HTTPS)
def test_a_trap_of_https_is_found(tmp_path, edit, found):
    (document,) = base("kube-scheduler/config-https.yaml")
    edit(document)
    assert codes_of(tmp_path, document) == found


POLICY = [
    pytest.param(put(httpTimeout=5), ["VS107"], id="VS107 seconds for nanoseconds"),
    pytest.param(put(httpTimeout=3_000_000_000), ["VS106"], id="VS106 below our deadline"),
    pytest.param(put(httpTimeout="5s"), ["VS100"], id="VS100 a duration"),
    pytest.param(put(enableHTTPS=False), ["VS100"], id="VS100 as the newer file calls it"),
    pytest.param(put(ignorable=True), ["VS102"], id="VS102 ignorable with bind"),
    pytest.param(drop("managedResources"), ["VS104"], id="VS104 asked about every pod"),
]


@pytest.mark.parametrize(("edit", "found"), POLICY)
def test_a_trap_in_a_policy_file_is_found(tmp_path, edit, found):
    (document,) = base("kube-scheduler/policy.json")
    edit(document)
    assert codes_of(tmp_path, document) == found


HEAD = {"apiVersion": "config.vreplica.dev/v1alpha1", "kind": "VReplicaSchedulerConfiguration"}
TOGETHER = [
    pytest.param({"server": {"port": 9999}}, ["VS118"], id="VS118 another port"),
    pytest.param(
        {"server": {"tls": {"certFile": "c", "keyFile": "k"}}},
        ["VS118"],
        id="VS118 the service has TLS",
    ),
    pytest.param({"server": {"host": "::1"}}, ["VS118"], id="VS118 loopback of the other family"),
    pytest.param({"server": {"host": "localhost"}}, [], id="loopback of both families"),
    pytest.param({"server": {"deadlineSeconds": 6}}, ["VS106"], id="VS106 a longer deadline"),
    pytest.param({"schedulerNames": ["other"]}, ["VS115"], id="VS115 binds for others"),
    pytest.param({"leaderElection": {"leaderElect": False}}, ["VS005"], id="VS005 everybody leads"),
    pytest.param({"server": {"host": "0.0.0.0", "insecure": True}}, ["VS004"], id="VS004 open"),
    pytest.param({"serber": {}}, ["VS002"], id="VS002 an unknown field"),
    pytest.param({"profiles": [{"name": "ha"}]}, ["VS003"], id="VS003 a name that is taken"),
    pytest.param({"slotsResource": True}, ["VS125"], id="VS125 requested, and ignored by nothing"),
    pytest.param({}, [], id="the defaults"),
]


@pytest.mark.parametrize(("sections", "found"), TOGETHER)
def test_kube_schedulers_file_is_compared_with_the_services(tmp_path, sections, found):
    (document,) = base("kube-scheduler/config.yaml")
    assert codes_of(tmp_path, document, service={**HEAD, **sections}) == found


MIXED = [
    pytest.param({}, ["VS124"], id="VS124 asked about the resource, which no pod requests"),
    pytest.param({"slotsResource": True}, [], id="both ways agree"),
]


@pytest.mark.parametrize(("sections", "found"), MIXED)
def test_what_the_scheduler_manages_is_compared_with_what_the_webhook_stamps(
    tmp_path, sections, found
):
    (document,) = base("kube-scheduler/config.yaml")
    put(managedResources=[{"name": "vreplica.dev/slots", "ignoredByScheduler": True}])(document)
    assert codes_of(tmp_path, document, service={**HEAD, **sections}) == found


def test_a_file_that_does_not_prioritize_goes_with_narrowing_only(tmp_path):
    (document,) = base("kube-scheduler/config-narrow.yaml")
    assert codes_of(tmp_path, document, service={**HEAD, "filter": {"narrowTo": 16}}) == []
    assert codes_of(tmp_path, document, service=HEAD) == ["VS121"]


def hook(**fields: object) -> Edit:
    return lambda document: document["webhooks"][0].update(fields)


def hook_without(name: str) -> Edit:
    return lambda document: document["webhooks"][0].pop(name)


def client(**fields: object) -> Edit:
    return lambda document: document["webhooks"][0]["clientConfig"].update(fields)


NOT_IN = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
WEBHOOK = [
    pytest.param(lambda d: d.update(webhooks=[]), ["VS200"], id="VS200 none of ours"),
    pytest.param(
        lambda d: (hook(failurePolicy="Fail")(d), hook_without("objectSelector")(d)),
        ["VS201"],
        id="VS201 locks kube-system",
    ),
    pytest.param(
        lambda d: (hook_without("failurePolicy")(d), hook_without("objectSelector")(d)),
        ["VS201"],
        id="VS201 Fail is the default",
    ),
    pytest.param(
        lambda d: (
            hook_without("objectSelector")(d),
            hook(
                failurePolicy="Fail",
                namespaceSelector={"matchExpressions": [{**NOT_IN, "values": ["kube-system"]}]},
            )(d),
        ),
        ["VS201"],
        id="VS201 locks our own namespace",
    ),
    pytest.param(
        lambda d: (
            hook_without("objectSelector")(d),
            hook(
                failurePolicy="Fail",
                namespaceSelector={
                    "matchExpressions": [{**NOT_IN, "values": ["kube-system", "vreplica-system"]}]
                },
            )(d),
        ),
        ["VS203"],
        id="VS203 both left out, and Fail",
    ),
    pytest.param(hook_without("objectSelector"), ["VS202"], id="VS202 everybody waits"),
    pytest.param(hook(failurePolicy="Fail"), ["VS203"], id="VS203 adapter pods wait"),
    pytest.param(hook(timeoutSeconds=30), ["VS204"], id="VS204 half a minute"),
    pytest.param(hook_without("timeoutSeconds"), ["VS204"], id="VS204 the default"),
    pytest.param(hook_without("reinvocationPolicy"), ["VS205"], id="VS205 once only"),
    pytest.param(
        lambda d: d["webhooks"][0]["clientConfig"]["service"].update(path="/mutat"),
        ["VS206"],
        id="VS206 no such path",
    ),
    pytest.param(hook(sideEffects="Some"), ["VS207"], id="VS207 side effects"),
    pytest.param(hook(timeoutSeconds=31), ["VS207"], id="VS207 too long"),
    pytest.param(hook(admissionReviewVersions=["v1beta1"]), ["VS207"], id="VS207 an old review"),
    pytest.param(hook(rules=[]), ["VS208"], id="VS208 no rule"),
    pytest.param(
        lambda d: d["webhooks"][0]["rules"][0].update(scope="Cluster"),
        ["VS208"],
        id="VS208 pods are in namespaces",
    ),
    pytest.param(
        lambda d: d["webhooks"][0]["rules"][0].update(apiVersions=["v2"]),
        ["VS208"],
        id="VS208 no such version",
    ),
    pytest.param(
        hook(
            objectSelector={
                "matchExpressions": [{"key": "vreplica.dev/pool", "operator": "DoesNotExist"}]
            }
        ),
        ["VS202", "VS210"],
        id="VS210 all but ours",
    ),
    pytest.param(
        hook(
            namespaceSelector={
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}
                ]
            }
        ),
        ["VS210"],
        id="VS210 no namespace",
    ),
    pytest.param(
        hook(objectSelector={"matchLabels": {"app": "x"}}), ["VS211"], id="VS211 a label more"
    ),
    pytest.param(
        hook(
            namespaceSelector={
                "matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]
            }
        ),
        ["VS211"],
        id="VS211 some namespaces",
    ),
    pytest.param(
        hook(matchConditions=[{"name": "x", "expression": "false"}]),
        ["VS211"],
        id="VS211 a condition",
    ),
    pytest.param(client(caBundle="!!"), ["VS209"], id="VS209 no base64"),
    pytest.param(client(caBundle="aGVsbG8="), ["VS209"], id="VS209 no certificate"),
]


@pytest.mark.parametrize(("edit", "found"), WEBHOOK)
def test_a_trap_in_a_webhook_registration_is_found(tmp_path, edit, found):
    document = base("base/webhook-configurations.yaml")[0]
    edit(document)
    assert codes_of(tmp_path, document) == found


def with_evictions(path: str) -> Any:
    """The registrations for validation, with the chart's webhook for evictions."""
    document = base("base/webhook-configurations.yaml")[1]
    added = copy.deepcopy(EVICTION_WEBHOOK["webhooks"][0])
    added["clientConfig"]["service"]["path"] = path
    document["webhooks"].append(added)
    return document


def test_the_charts_webhook_for_evictions_has_the_right_path(tmp_path):
    assert codes_of(tmp_path, with_evictions("/evict")) == []


def test_another_path_of_the_webhook_for_evictions_is_found_with_the_right_one(tmp_path):
    file = tmp_path / "checked.yaml"
    file.write_text(yaml.safe_dump(with_evictions("/validate")))
    (found,) = check_files([str(file)]).findings
    assert (found.code.code, found.message) == ("VS206", "'/validate', not /evict")


def test_a_webhook_for_other_requests_is_not_called_at_the_path_for_evictions(tmp_path):
    document = base("base/webhook-configurations.yaml")[1]
    document["webhooks"][0]["clientConfig"]["service"]["path"] = "/evict"
    assert codes_of(tmp_path, document) == ["VS206"]


SHIPPED = sorted(
    path.relative_to(MANIFESTS).as_posix()
    for folder in ("base", "kube-scheduler", "components")
    for path in (MANIFESTS / folder).rglob("*")
    if path.suffix in {".yaml", ".json"}
    and path.name != "patches.yaml"  # parts of objects, for kustomize
    and re.search(
        r"^kind: (VReplicaSchedulerConfiguration|KubeScheduler\w+|\w+WebhookConfiguration)$"
        r'|"kind": "Policy"',
        path.read_text(),
        re.MULTILINE,
    )
)


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_found_in_what_we_ship(name):
    assert check_files([str(MANIFESTS / name)]).findings == []


def test_what_goes_together_as_we_ship_it_is_well():
    component = MANIFESTS / "components" / "https" / "service-config.yaml"
    https = MANIFESTS / "kube-scheduler" / "config-https.yaml"
    assert check_files([str(component), str(https)]).findings == []


def test_every_code_is_found_by_some_test():
    rows: list[Any] = [*SCHEDULER, *HTTPS, *POLICY, *TOGETHER, *MIXED, *WEBHOOK]
    tested = {code for row in rows for code in row.values[1]} | {"VS001", "VS121"}
    assert tested == set(CODES)


def test_a_finding_has_its_line_and_the_exit_status_says_how_bad_it_is(tmp_path, capsys):
    text = (MANIFESTS / "kube-scheduler" / "config.yaml").read_text()
    file = tmp_path / "s.yaml"
    file.write_text(text.replace("ignorable: false", "ignorable: true"))
    line = 1 + next(
        n for n, one in enumerate(text.splitlines()) if one.strip() == "ignorable: false"
    )
    assert main(["config", "check", str(file)]) == 1
    assert f"{file}:{line}:5: error VS102: extenders[0].ignorable: " in capsys.readouterr().out
    assert main(["config", "check", "-o", "json", str(file)]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["line"], finding["severity"]) == ("VS102", line, "error")


def test_warnings_end_well_unless_they_are_to_be_strict_about(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    text = (MANIFESTS / "kube-scheduler" / "config.yaml").read_text()
    file.write_text(text.replace("nodeCacheCapable: true", "nodeCacheCapable: false"))
    assert main(["config", "check", str(file)]) == 0
    assert main(["config", "check", "--strict", str(file)]) == 1
    assert "errors: 0, warnings: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        pytest.param(None, 1, "cannot be read", id="no file"),
        pytest.param("a: [", 1, "is not YAML", id="no YAML"),
        pytest.param("kind: VPod\n", 1, "holds VPod", id="another kind"),
        pytest.param(
            "kind: KubeSchedulerConfig\n",
            1,
            "did you mean KubeSchedulerConfiguration?",
            id="a typing error",
        ),
        pytest.param("", 1, "holds no object with a kind", id="nothing"),
    ],
)
def test_a_file_that_is_none_of_those_is_told(tmp_path, capsys, text, status, says):
    file = tmp_path / "x.yaml"
    if text is not None:
        file.write_text(text)
    assert main(["config", "check", str(file)]) == status
    out = capsys.readouterr().out
    assert "error VS001" in out
    assert says in out


def test_the_services_own_file_holds_one_document(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    file.write_text(
        "---\n".join(yaml.safe_dump(one) for one in (HEAD, *base("kube-scheduler/config.yaml")))
    )
    assert main(["config", "check", str(file)]) == 1
    assert (
        "error VS002: must be the only document of its file, not one of 2"
        in capsys.readouterr().out
    )


def test_a_list_as_kubectl_prints_it_is_looked_into(tmp_path):
    document = base("base/webhook-configurations.yaml")[0]
    hook(failurePolicy="Fail")(document)
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Namespace"}, document]}
    assert codes_of(tmp_path, listed) == ["VS203"]
