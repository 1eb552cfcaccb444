"""``vreplica config view``: all that is in force, and it reads back."""

import json

import yaml
from hypothesis import given, settings

from extender.cli.main import main
from extender.config.document import parse
from extender.config.model import Config
from extender.config.reading import config_of
from extender.config.settings import SETTINGS
from extender.config.view import document_of, rows_of
from tests.config.documents import configs
from tests.support.configs import config_from

TEXT = """apiVersion: config.vreplica.dev/v1alpha1
kind: VReplicaSchedulerConfiguration
server:
  deadlineSeconds: 3
filter: {narrowTo: 16}
profiles:
  - name: mine
"""


@settings(max_examples=25, deadline=None)
@given(configs())
def test_what_is_shown_reads_back_as_the_same_configuration(config):
    document = document_of(config)
    assert config_from(document) == config
    assert config_from(yaml.safe_load(yaml.safe_dump(document))) == config
    assert config_from(json.loads(json.dumps(document))) == config


def test_every_setting_is_shown_with_where_it_is_from():
    document = parse(TEXT, "f.yaml")
    rows = {row["setting"]: row for row in rows_of(config_of(document), document)}
    assert set(rows) == {entry.path for entry in SETTINGS}
    assert rows["server.deadlineSeconds"] == {
        "setting": "server.deadlineSeconds", "value": "3", "from": "line 4", "reload": "live",
    }  # fmt: skip
    assert (rows["filter.narrowTo"]["value"], rows["filter.narrowTo"]["from"]) == ("16", "line 5")
    assert (rows["profiles"]["value"], rows["profiles"]["from"]) == ("mine", "line 6")
    assert (rows["server.port"]["value"], rows["server.port"]["from"]) == ("10261", "default")


def test_the_command_prints_yaml_json_and_a_table(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text(TEXT)
    assert main(["config", "view", str(file)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["server"]["deadlineSeconds"], shown["server"]["port"]) == (3, 10261)
    assert main(["config", "view", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == shown
    assert main(["config", "view", str(file), "-o", "table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "FROM", "RELOAD"]
    assert "server.deadlineSeconds" in "".join(lines)


def test_without_a_file_the_defaults_are_shown(capsys):
    assert main(["config", "view"]) == 0
    assert config_from(yaml.safe_load(capsys.readouterr().out)) == Config()
