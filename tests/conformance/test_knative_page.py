"""docs/knative.md says what the code does: every named difference, every rule of every profile, and
files that read.
"""

import ast
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from extender.cli.main import main
from extender.config.profiles import load_profiles
from extender.engine.policy.profile import DEFAULT_PROFILE, KNATIVE_1_16_RULES, Profile, Rules
from extender.engine.policy.profiles import KNATIVE_MAXFILLUP_PROFILE, KNATIVE_PROFILE
from tests.support.configs import load_config

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "knative.md"
TEXT = PAGE.read_text()
HEAD = "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n"
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: %s}
data:
  predicates: |+
    [{"Name": "%s"}]
  priorities: |+
    [{"Name": "%s", "Weight": 2}]
"""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def differences_in_code() -> list[str]:
    """The first argument of every ``Difference(...)`` of the suites."""
    return [
        ast.literal_eval(node.args[0])
        for path in sorted(HERE.glob("*.py"))
        if not path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Difference"
    ]


def test_every_named_difference_has_one_row_and_every_row_is_one():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", TEXT, re.MULTILINE)
    assert sorted(rows) == sorted(set(differences_in_code()))


def test_every_row_fills_every_column():
    rows = [cells(line) for line in TEXT.splitlines() if line.startswith("| **")]
    assert [row[0] for row in rows if len(row) != 5 or not all(row)] == []


@pytest.mark.parametrize(
    ("column", "profile"),
    [
        pytest.param(1, DEFAULT_PROFILE, id="default"),
        pytest.param(2, KNATIVE_PROFILE, id="knative"),
        pytest.param(3, KNATIVE_MAXFILLUP_PROFILE, id="knative-maxfillup"),
    ],
)
def test_the_table_of_rules_is_what_the_profiles_have(column: int, profile: Profile):
    rows = [cells(line) for line in TEXT.splitlines() if re.match(r"\| `[a-z]+[A-Z]", line)]
    shown = {row[0].strip("`"): row[column] for row in rows}
    assert shown == {
        camel(name): "on" if on else "off" for name, on in asdict(profile.rules).items()
    }


def camel(name: str) -> str:
    return re.sub(r"_(.)", lambda found: found[1].upper(), name)


def test_the_configurations_on_the_page_read_and_mean_what_they_say(tmp_path):
    (tmp_path / "config-kafka-scheduler.yaml").write_text(
        CONFIG_MAP % ("scheduler", "PodFitsResources", "LowestOrdinalPriority")
    )
    (tmp_path / "config-kafka-descheduler.yaml").write_text(
        CONFIG_MAP % ("descheduler", "PodFitsResources", "RemoveWithHighestOrdinalPriority")
    )
    found: dict[str, Profile] = {}
    for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL):
        config = tmp_path / "config.yaml"
        config.write_text(HEAD + block)
        assert main(["config", "check", str(config)]) == 0
        found.update(load_profiles(load_config(str(config)), str(config)))
    assert found["as-before"].rules == Rules()
    to_the_letter = asdict(found["to-the-letter"].rules) | {
        "round_robin": False
    }  # plugins choose there
    assert to_the_letter == asdict(KNATIVE_1_16_RULES)
