"""The usual mistakes of a first hour end in one line that names the fix, never in a traceback."""

import errno
import os
import socket
from pathlib import Path

import pytest

from extender.cli.main import main
from extender.config.kube_scheduler_file import InvalidConfiguration, load_configuration
from extender.kube.api import ApiError, ConnectError, Forbidden, NotFound, OutcomeUnknown
from extender.kube.first_errors import USUAL, describe_error
from extender.python_version import python_problem, refuse_old_python

ROOT = Path(__file__).parents[2]
CONFIG = "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n"


def a_kubeconfig(folder: Path, server: str) -> str:
    file = folder / "kubeconfig"
    file.write_text(
        f"apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        "users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: "
        "u}}]\ncurrent-context: c\n"
    )
    return str(file)


def a_config(folder: Path, text: str) -> str:
    file = folder / "config.yaml"
    file.write_text(CONFIG + text)
    return str(file)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without any kubeconfig."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def one_line(capsys) -> str:
    error = capsys.readouterr().err
    (line,) = [line for line in error.splitlines() if line.startswith("vreplica: ")]
    assert "Traceback" not in error
    return str(line)


@pytest.mark.parametrize(
    "command", [["plan"], ["explain", "a"], ["top", "--once"], ["doctor"]], ids=" ".join
)
def test_without_a_cluster(command, nowhere, capsys):
    assert main(command) == 1
    line = one_line(capsys)
    hint = "Set KUBECONFIG or give --kubeconfig FILE; without any cluster try `vreplica run`."
    assert hint in line
    assert line.count("kubeconfig") <= 3


def test_a_service_without_a_cluster(nowhere, capsys, tmp_path):
    assert main(["serve", "--config", a_config(tmp_path, "")]) == 1
    assert "without any cluster try `vreplica run`" in one_line(capsys)


def test_a_cluster_that_does_not_answer(capsys, tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # taken, and nobody listens: refused
        port = listener.getsockname()[1]
        assert (
            main(["doctor", "--kubeconfig", a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")])
            == 1
        )
    assert "The API server cannot be reached" in one_line(capsys)


def test_a_file_that_is_no_kubeconfig(capsys):
    pods = str(ROOT / "manifests" / "examples" / "plan" / "pods.yaml")
    assert main(["doctor", "--kubeconfig", pods]) == 1
    assert "kubectl --kubeconfig FILE cluster-info" in one_line(capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", "names no cluster", id="an empty one"),
        pytest.param("- a\n", "names no cluster", id="a list"),
        pytest.param("clusters: [", "is not YAML", id="half of one"),
        pytest.param(None, "is a directory", id="a directory"),
    ],
)
def test_a_kubeconfig_that_names_no_cluster(capsys, tmp_path, monkeypatch, content, said):
    file = tmp_path / "kubeconfig"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert main(["top", "--once"]) == 1
    assert f"kubeconfig {file}: {said}" in one_line(capsys)


def test_a_kubeconfig_of_the_environment_that_is_not_there(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    assert main(["top", "--once"]) == 1
    assert "nothing: no such file" in one_line(capsys)


def test_a_recording_that_is_not_there(capsys, tmp_path):
    assert main(["replay", str(tmp_path / "nothing")]) == 1
    assert one_line(capsys).startswith(
        f"vreplica: {tmp_path / 'nothing'}: No such file or directory"
    )


def test_a_port_that_is_taken(capsys):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert main(["cluster", "--port", str(listener.getsockname()[1])]) == 1
    assert "Another program listens there" in one_line(capsys)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            "kind: VPod\n", "must be VReplicaSchedulerConfiguration, not 'VPod'", id="a VPod"
        ),
        pytest.param(
            "a: 1\n---\nkind: VPod\n",
            "expected a single document, found 2 (kind None, VPod)",
            id="manifests",
        ),
        pytest.param("\x00", "is not YAML", id="no text"),
        pytest.param(
            "serve: {}\n", "apiVersion: must be config.vreplica.dev/v1alpha1", id="no kind"
        ),
    ],
)
def test_a_wrong_file_as_configuration(tmp_path, capsys, text, says):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    assert main(["serve", "--config", str(file)]) == 1
    assert says in one_line(capsys)


TAGGED = ("!!int", "!!bool maybe", "!!float", "!!timestamp x", "!!int '1:x'")


@pytest.mark.parametrize("value", TAGGED)
def test_a_value_that_its_tag_does_not_allow(tmp_path, capsys, monkeypatch, value):
    """Found by fuzzing: PyYAML raises what it likes then."""
    file = tmp_path / "odd.yaml"
    file.write_text(f"a: {value}\n")
    monkeypatch.setenv("KUBECONFIG", str(file))
    for command in (
        ["plan", "-f", str(file)],
        ["serve", "--config", str(file)],
        ["top", "--once"],
        ["simulate", "--profile", str(file), "--seeds", "1"],
    ):
        assert main(command) == 1
        said = one_line(capsys)
        assert "odd.yaml" in said
        assert "YAML" in said
    assert main(["config", "check", str(file)]) == 1
    assert "is not YAML" in capsys.readouterr().out
    with pytest.raises(InvalidConfiguration, match="cannot be parsed"):
        load_configuration(file.read_bytes())


ROWS = [
    pytest.param(ConnectError("no kubeconfig given, x"), "try `vreplica run`", id="no kubeconfig"),
    pytest.param(ConnectError("kubeconfig x: broken"), "cluster-info", id="a broken kubeconfig"),
    pytest.param(
        OutcomeUnknown(0, "ConnectionFailed", "certificate verify failed: self-signed"),
        "is not trusted",
        id="not trusted",
    ),
    pytest.param(
        OutcomeUnknown(0, "Timeout", "GET /x: none within 10 s"),
        "cannot be reached",
        id="no answer",
    ),
    pytest.param(
        Forbidden(403, "Forbidden", "pods is forbidden"),
        "kubectl auth can-i --list",
        id="no permission",
    ),
    pytest.param(
        NotFound(404, "NotFound", "the server could not find the requested resource"),
        "kubectl apply -k manifests/crds",
        id="no CRDs",
    ),
    pytest.param(
        ApiError(401, "Unauthorized", "Unauthorized"), "log in again", id="no longer logged in"
    ),
    pytest.param(
        OSError(errno.EADDRINUSE, "in use"), "choose another port", id="a port that is taken"
    ),
    pytest.param(
        PermissionError(errno.EACCES, "denied"), "below 1024", id="a port that needs rights"
    ),
    pytest.param(OSError(errno.EADDRNOTAVAIL, "no"), "server.host", id="an address of others"),
]


@pytest.mark.parametrize(("error", "says"), ROWS)
def test_an_error_is_told_with_its_fix(error, says):
    line = describe_error(error)
    assert says in line
    assert "\n" not in line


def test_every_usual_mistake_has_a_test():
    fixes = {usual.fix for usual in USUAL}
    told = [describe_error(row.values[0]) for row in ROWS]  # type: ignore[arg-type]
    assert {fix for fix in fixes if any(line.endswith(fix) for line in told)} == fixes


def test_an_error_that_is_not_usual_stays_as_it_is():
    assert (
        describe_error(NotFound(404, "NotFound", 'pods "x" not found'))
        == '404 NotFound: pods "x" not found'
    )
    assert (
        describe_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        == f"[Errno {errno.ENOSPC}] No space left on device"
    )


def test_a_python_that_is_too_old_is_told_with_what_to_do():
    assert python_problem((3, 11, 0), "/usr/bin/python3") == ""
    problem = python_problem((3, 9, 2), "/usr/bin/python3")
    assert problem.startswith("needs Python 3.11 or later, and /usr/bin/python3 is 3.9.2")


def test_an_old_python_ends_before_anything_else_is_read(monkeypatch):
    monkeypatch.setattr("sys.version_info", (3, 9, 2, "final", 0))
    with pytest.raises(SystemExit, match=r"vreplica: needs Python 3\.11 or later"):
        refuse_old_python()
