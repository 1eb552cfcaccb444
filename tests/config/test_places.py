"""Errors of the configuration file say where, and what was probably meant."""

import pytest

from extender.config.document import InvalidField, parse, parse_all
from extender.config.nearest import nearest
from extender.config.profiles import open_config
from extender.config.reading import config_of, read_config
from extender.model.errors import InvalidObject

HEAD = "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n"


def refused(text: str) -> str:
    with pytest.raises(InvalidObject) as caught:
        config_of(parse(HEAD + text, "f.yaml"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            "server:\n  tls:\n    certfile: x\n",
            "f.yaml: server.tls.certfile: unknown field, line 5, column 5; did you mean certFile?",
            id="letter case",
        ),
        pytest.param(
            "serevr: {}\n",
            "f.yaml: serevr: unknown field, line 3, column 1; did you mean server?",
            id="a typing error",
        ),
        pytest.param(
            "narrowTo: 3\n",
            "f.yaml: narrowTo: unknown field, line 3, column 1; did you mean filter.narrowTo?",
            id="in the wrong section",
        ),
        pytest.param(
            "leaderElection: {renewDeadline: 10s}\n",
            "f.yaml: leaderElection.renewDeadline: unknown field, line 3, column 18; did you mean "
            "renewDeadlineSeconds?",
            id="as kube-scheduler calls it",
        ),
        pytest.param(
            "server:\n  port: '80'\n",
            "f.yaml: server.port: must be a whole number from 0 to 65535, not '80', line 4, column "
            "3; remove the quotes",
            id="a number in quotes",
        ),
        pytest.param(
            "mode: shadwo\n",
            "f.yaml: mode: must be one of active, shadow, line 3, column 1; did you mean shadow?",
            id="a choice",
        ),
        pytest.param(
            "schedulerNames:\n  - a\n  - ''\n",
            "f.yaml: schedulerNames[1]: must be a string that is not empty, line 5, column 5",
            id="an item of a list",
        ),
        pytest.param(
            "leaderElection:\n  leaseDurationSeconds: 5\n",
            "f.yaml: leaderElection.leaseDurationSeconds: must be greater than "
            "renewDeadlineSeconds, line 4, column 3",
            id="what does not go together",
        ),
        pytest.param(
            "xyzzy: 1\n",
            "f.yaml: xyzzy: unknown field, line 3, column 1; known fields: apiVersion, kind,",
            id="nothing like it",
        ),
    ],
)
def test_an_error_has_its_line_and_the_nearest_name(text, says):
    assert refused(text).startswith(says)


def test_all_that_is_wrong_is_told_in_the_files_order():
    config, problems = read_config(
        parse(HEAD + "mode: x\nserver: {port: -1}\nburst: 3\n", "f.yaml")
    )
    assert config is None
    assert [problem.field for problem in problems] == ["mode", "server.port", "burst"]


@pytest.mark.parametrize(
    ("text", "field", "first"),
    [
        pytest.param(
            "server: {port: 1}\nmode: active\nserver: {port: 2}\n", "server", 3, id="a section"
        ),
        pytest.param("server:\n  port: 1\n  port: 2\n", "server.port", 4, id="a field"),
        pytest.param('{"a": 1,\n "a": 2}', "a", None, id="in JSON"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_both_lines(text, field, first):
    with pytest.raises(InvalidField) as caught:
        parse((HEAD if first else "") + text, "f.yaml")
    assert caught.value.field == field
    assert f"occurs twice, first on line {first or 1}, line " in str(caught.value)


def test_a_key_that_comes_by_a_merge_too_is_not_there_twice():
    text = "a: &a {x: 1, y: 1}\nb: {<<: *a, x: 2}\n"
    assert parse(text, "f").value == {"a": {"x": 1, "y": 1}, "b": {"x": 2, "y": 1}}


def test_json_that_is_indented_by_tabs_reads():
    (document,) = parse_all('{\n\t"a": {\n\t\t"b": 1}}', "f.json")
    assert document.value == {"a": {"b": 1}}
    assert document.place("a.b").line == 3


def test_aliases_that_stand_for_billions_of_values_take_no_time():
    text = "a0: &a0 [1, 1]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)
    )
    document = parse(text, "f")
    assert document.place("a59").line == 60
    assert document.place("a59[0]").line == 59  # an alias is where its anchor is


def test_a_field_of_an_anchored_mapping_has_its_own_place_and_under_an_alias_the_aliass_place():
    document = parse("a:\n  c: &x\n    p: {q: 1}\nb: *x\n", "f")
    assert document.place("a.c.p.q") == (3, 9)
    assert document.place("b.p.q") == document.place("b") == (4, 1)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        pytest.param("VPod", "kubectl apply -f", id="VPod"),
        pytest.param(
            "KubeSchedulerConfiguration", "kube-scheduler's --config", id="kube-scheduler's"
        ),
        pytest.param("Config", "clientConnection.kubeconfig", id="a kubeconfig"),
    ],
)
def test_a_file_of_another_kind_is_told_for_what_it_is(kind, says):
    with pytest.raises(InvalidObject) as caught:
        config_of(parse(f"apiVersion: v1\nkind: {kind}\nspec: {{a: 1}}\n", "f.yaml"))
    assert f"kind: must be VReplicaSchedulerConfiguration, not '{kind}', line 2" in str(
        caught.value
    )
    assert says in str(caught.value)


def test_an_error_in_a_profile_has_its_line(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "profiles:\n  - name: mine\n    scores:\n      - {name: ZoneSpraed}\n")
    with pytest.raises(InvalidField, match=r"scores\[0\].name: .* line 6, column 10"):
        open_config(str(file))


def test_an_error_in_a_config_map_that_a_profile_names_has_the_line_of_both(tmp_path):
    (tmp_path / "s.yaml").write_text("kind: ConfigMap\nkind: ConfigMap\n")
    file = tmp_path / "c.yaml"
    file.write_text(
        HEAD + "profiles:\n  - name: mine\n    knativeConfigMaps: {scheduler: s.yaml}\n"
    )
    with pytest.raises(InvalidField) as caught:
        open_config(str(file))
    assert caught.value.field == "profiles[0].knativeConfigMaps.scheduler"
    assert caught.value.place.line == 5
    assert "s.yaml: kind: occurs twice, first on line 1, line 2, column 1" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("certfile", "certFile"), ("prioritise", "prioritize"), ("xyz", ""), ("a" * 10_000, "")],
)
def test_the_nearest_name(name, meant):
    assert nearest(name, ["certFile", "keyFile", "prioritize"]) == meant
