"""A result in the form that ``-o`` asks for: JSON and YAML have the same data."""

import json
from enum import StrEnum

import pytest
import yaml

from extender.cli.terminal.output import print_result


class Reason(StrEnum):
    FULL = "Full"


def test_yaml_says_what_json_says_also_of_texts_and_lists_of_other_classes(
    capsys: pytest.CaptureFixture[str],
):
    result = {"reasons": (Reason.FULL,), "by": {Reason.FULL: [1, 2.5, None, True]}}
    print_result(result, "json", lambda: None)
    as_json = json.loads(capsys.readouterr().out)
    print_result(result, "yaml", lambda: None)
    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_a_table_is_whatever_its_maker_prints(capsys: pytest.CaptureFixture[str]):
    made: list[str] = []
    print_result({}, "table", lambda: made.append("printed"))
    assert (made, capsys.readouterr().out) == (["printed"], "")
