"""The same mistake ends every command with the same status, as docs/cli.md has it."""

import gc
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from extender.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
CLUSTER = str(EXAMPLES / "profiles" / "cluster.yaml")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        pytest.param("--drain", "/node-0", "is not pod/NAME", id="a drain of no kind"),
        pytest.param("--drain", "rack/a", "is not pod/NAME", id="a drain of another kind"),
        pytest.param("--set", "colour=3", "cannot be set (can be: maxPods", id="no such field"),
        pytest.param("--set", "slotsPerPod=0", "is at least 1", id="too little"),
        pytest.param("--set", "slotsPerPod", "is not FIELD=NUMBER", id="no number"),
        pytest.param("--add-vpods", "some", "is not N or NxVREPLICAS", id="no number of vpods"),
        pytest.param("--add-tenant", "a", "is not NAME=SLOTS", id="a tenant without slots"),
        pytest.param("--add-tenant", "a=0", "is not NAME=SLOTS", id="a tenant of no slots"),
        pytest.param("--add-tenant", "=3", "is not NAME=SLOTS", id="a tenant without a name"),
    ],
)
def test_a_value_that_no_cluster_could_make_right_is_a_wrong_command_line(
    option, value, says, capsys
):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", CLUSTER, option, value])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("value", ["node/nowhere", "pod/none-1", "zone/nowhere"])
def test_a_value_that_the_cluster_does_not_have_is_no_wrong_command_line(value, capsys):
    assert main(["plan", "-f", CLUSTER, "--drain", value]) == 1
    assert "is not known (known: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["plan", "-f", CLUSTER], id="plan"),
        pytest.param(["plan", "-f", CLUSTER, "-o", "json"], id="plan in JSON"),
        pytest.param(["plan", "-f", CLUSTER, "--add-vpods", "200x2"], id="what if"),
        pytest.param(["explain", "-f", CLUSTER, "pod/a-0"], id="explain"),
        pytest.param(["config", "view"], id="config view"),
    ],
)
def test_a_reader_that_has_gone_is_told_by_the_status_and_by_nothing_else(arguments):
    if arguments[0] == "explain":
        arguments = [*arguments[:-1], f"pod/{a_pod()}"]
    with subprocess.Popen(
        [sys.executable, "-m", "extender.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(30) == 141, said
    assert not [line for line in said.splitlines() if "Traceback" in line or "BrokenPipe" in line]


def a_pod() -> str:
    documents = yaml.safe_load_all(Path(CLUSTER).read_text())
    objects = [inner for one in documents if one for inner in one.get("items", [one])]
    pod = next(one for one in objects if one["kind"] == "Pod")
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


@pytest.mark.parametrize("command", ["check", "view"])
def test_a_file_that_cannot_be_read_ends_every_command_alike(command, capsys, tmp_path):
    assert main(["config", command, str(tmp_path / "none.yaml")]) == 1
    assert main(["plan", "-f", str(tmp_path / "none.yaml")]) == 1
    capsys.readouterr()


@pytest.fixture
def _as_before() -> Iterator[None]:
    """``simulate`` silences the log and freezes the collector of what is its own process
    otherwise.
    """
    thresholds = gc.get_threshold()
    yield
    logging.disable(logging.NOTSET)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ["config", "check", str(EXAMPLES.parent / "base" / "service-config.yaml")],
            id="config check",
        ),
        pytest.param(["simulate", "--seeds", "1", "--events", "2"], id="simulate"),
    ],
)
def test_yaml_and_json_have_the_same_data(arguments, capsys):
    assert main([*arguments, "-o", "json"]) == 0
    in_json = json.loads(capsys.readouterr().out)
    assert main([*arguments, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == in_json
