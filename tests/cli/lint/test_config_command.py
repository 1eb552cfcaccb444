"""``vreplica config`` and the profiles of a configuration file, as a user meets them."""

import re
from pathlib import Path

import pytest
import yaml

from extender.cli.main import main
from extender.engine.policy.profiles import BUILT_IN_PROFILES

ROOT = Path(__file__).parents[3]
HEAD = "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n"
SCHEDULER = """
apiVersion: v1
kind: ConfigMap
metadata: {name: config-kafka-scheduler}
data:
  predicates: |+
    [{"Name": "PodFitsResources"}]
  priorities: |+
    [{"Name": "AvailabilityZonePriority", "Weight": 10, "Args": "{\\"MaxSkew\\": 2}"},
     {"Name": "LowestOrdinalPriority", "Weight": 2}]
"""
DESCHEDULER = """
apiVersion: v1
kind: ConfigMap
metadata: {name: config-kafka-descheduler}
data:
  priorities: |+
    [{"Name": "RemoveWithHighestOrdinalPriority", "Weight": 2}]
"""


def a_file(tmp_path: Path, name: str, text: str) -> str:
    file = tmp_path / name
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("profiles: [{name: "
            "ha}]", "profiles[0].name: 'ha' is taken", id="a built-in name"),
        pytest.param(
            "profiles: [{name: x}, {name: "
            "x}]", "profiles[1].name: 'x' is taken", id="a name that is there twice"
        ),
        pytest.param(
            "profiles: [{name: x, scores: [{name: "
            "Nope}]}]", "scores[0].name: 'Nope' is not known", id="no plugin"
        ),
        pytest.param(
            "profiles: [{name: x, knativeConfigMaps: {scheduler: "
            "gone.yaml}}]", "gone.yaml: ", id="a missing file"
        ),
        pytest.param(
            "profiles: [{name: x, knativeConfigMaps: {descheduler: d.yaml}}]",
            "profiles[0].knativeConfigMaps: must be {scheduler: FILE",
            id="no scheduler",
        ),
        pytest.param(
            "profiles: [{name: x, knativeConfigMaps: {scheduler: s}, scores: []}]",
            "profiles[0].scores: cannot be combined",
            id="both forms",
        ),
        pytest.param(
            "profiles: [{name: x, knativeConfigMaps: {scheduler: s, ignoreUnknown: 1}}]",
            "profiles[0].knativeConfigMaps.ignoreUnknown: must be true or false",
            id="a switch that is no boolean",
        ),
        pytest.param("profiles: [{scores: []}]", "name: must be a text", id="no name"),
    ],
)  # fmt: skip
def test_a_profile_that_does_not_read_is_told_in_one_line(tmp_path, capsys, text, says):
    assert main(["config", "check", a_file(tmp_path, "config.yaml", HEAD + text)]) == 1
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "error VS003" in line]
    assert says in told
    assert main(["plan", "--config", a_file(tmp_path, "config.yaml", HEAD + text), "-f", "x"]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_good_file_is_told_with_its_profiles(tmp_path, capsys):
    a_file(tmp_path, "scheduler.yaml", SCHEDULER)
    a_file(tmp_path, "descheduler.yaml", DESCHEDULER)
    text = (
        "profiles: [{name: mine, scores: [{name: ZoneSpread}]}, {name: as-before, "
        "knativeConfigMaps: "
        "{scheduler: scheduler.yaml, descheduler: descheduler.yaml}}]"
    )
    assert main(["config", "check", a_file(tmp_path, "config.yaml", HEAD + text)]) == 0
    told = capsys.readouterr().out.partition("profiles: ")[2].splitlines()[0].split(", ")
    assert set(told) == {"as-before", "mine", *BUILT_IN_PROFILES}


@pytest.mark.parametrize(
    "name", ["config.yaml", "config-https.yaml", "config-narrow.yaml", "policy.json"]
)
def test_the_scheduler_files_that_we_ship_are_checked_as_kube_scheduler_reads_them(name, capsys):
    assert main(["config", "check", str(ROOT / "manifests" / "kube-scheduler" / name)]) == 0
    assert "extenders: 1" in capsys.readouterr().out


def test_a_scheduler_file_that_kube_scheduler_would_refuse_is_refused(tmp_path, capsys):
    file = a_file(
        tmp_path,
        "s.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: 'http://x', prioritizeVerb: prioritize, weight: 0}]",
    )
    assert main(["config", "check", file]) == 1
    assert "kube-scheduler would refuse it" in capsys.readouterr().out


def test_knatives_config_maps_are_printed_as_a_profile_that_reads_and_plans(tmp_path, capsys):
    scheduler = a_file(tmp_path, "scheduler.yaml", SCHEDULER)
    descheduler = a_file(tmp_path, "descheduler.yaml", DESCHEDULER)
    arguments = ["--name", "before", "--scheduler", scheduler, "--descheduler", descheduler]
    assert main(["config", "import-knative", *arguments]) == 0
    printed = capsys.readouterr().out
    assert [item["name"] for item in yaml.safe_load(printed)["profiles"][0]["scores"]] == [
        "AvailabilityZonePriority",
        "LowestOrdinalPriority",
    ]
    config = a_file(tmp_path, "config.yaml", HEAD + printed)
    cluster = str(ROOT / "manifests" / "examples" / "profiles" / "cluster.yaml")
    assert (
        main(["plan", "--config", config, "--profile", "before", "-f", cluster, "-o", "json"]) == 0
    )


def test_a_name_that_knative_ignores_is_an_error_unless_it_shall_be_ignored(tmp_path, capsys):
    scheduler = a_file(
        tmp_path, "scheduler.yaml", SCHEDULER.replace("PodFitsResources", "NoSuchPredicate")
    )
    assert main(["config", "import-knative", "--scheduler", scheduler]) == 1
    assert "'NoSuchPredicate' is not known" in capsys.readouterr().err
    assert main(["config", "import-knative", "--scheduler", scheduler, "--ignore-unknown"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["profiles"][0]["filters"] == []
    text = (
        "profiles: [{name: x, knativeConfigMaps: {scheduler: scheduler.yaml, ignoreUnknown: true}}]"
    )
    assert main(["config", "check", a_file(tmp_path, "config.yaml", HEAD + text)]) == 0


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_configuration_in_the_docs_reads(page, tmp_path):
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if "kind: VReplicaSchedulerConfiguration" in block and "..." not in block:
            assert main(["config", "check", a_file(tmp_path, "config.yaml", block)]) == 0
