"""The published schema takes what the loader takes, and refuses what it refuses, as far as a schema
can say it.
"""

import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings

from extender.cli.lint.command import schema_text
from extender.config.document import Document
from extender.config.profiles import load_profiles
from extender.config.reading import read_config
from extender.config.schema import config_schema
from extender.config.settings import SETTINGS
from extender.model.errors import InvalidObject
from tests.config.documents import documents
from tests.support.json_schema import problems, valid

ROOT = Path(__file__).parents[2]
SCHEMA = config_schema()
BEYOND_A_SCHEMA = re.compile(
    r"must differ from (port|server\.port)"
    r"|must be greater than (renewDeadlineSeconds|1\.2 times retryPeriodSeconds)"
    r"|must be a whole number from .* not -?[0-9.]+$"
    r"|must be a number from 0\.1 to periodSeconds"
    r"|\(known: |is listed twice|is taken|: args|\.args|cannot be read"
)
"""What the loader refuses and a schema cannot say: comparisons of settings, 15.0 for 15, plugins
and files that there are.
"""


def refused_by_the_loader(document: object) -> list[str]:
    config, errors = read_config(Document("f.yaml", document))
    if config is None:
        return [str(error) for error in errors]
    try:
        load_profiles(config, "/nonexistent/f.yaml")
    except InvalidObject as error:
        return [str(error)]
    return []


@settings(max_examples=120, deadline=None)
@given(documents())
def test_schema_and_loader_take_the_same_documents(document):
    errors = refused_by_the_loader(document)
    found = list(problems(document, SCHEMA))
    if not errors:
        assert not found
    elif not found:
        assert all(BEYOND_A_SCHEMA.search(error) for error in errors), errors


def test_the_published_schema_is_what_the_code_makes():
    assert (ROOT / "manifests" / "config.schema.json").read_text() == schema_text(), (
        "vreplica config schema > manifests/config.schema.json"
    )


@pytest.mark.parametrize(
    "name", ["base/service-config.yaml", "components/https/service-config.yaml"]
)
def test_the_files_that_we_ship_conform(name):
    assert list(problems(yaml.safe_load((ROOT / "manifests" / name).read_text()), SCHEMA)) == []


HEAD = {"apiVersion": "config.vreplica.dev/v1alpha1", "kind": "VReplicaSchedulerConfiguration"}
TLS = {"certFile": "c", "keyFile": "k", "clientCAFile": "ca", "allowedClients": ["x"]}


@pytest.mark.parametrize(
    ("server", "good"),
    [
        pytest.param({"host": "0.0.0.0"}, False, id="open"),
        pytest.param({"host": "0.0.0.0", "insecure": True}, True, id="open on purpose"),
        pytest.param({"host": "0.0.0.0", "tls": TLS}, True, id="closed"),
        pytest.param(
            {"host": "0.0.0.0", "tls": {**TLS, "allowedClients": []}}, False, id="any client"
        ),
        pytest.param({"tls": {"certFile": "c"}}, False, id="no key"),
        pytest.param({"tls": {"certFile": "c", "keyFile": ""}}, False, id="an empty key"),
        pytest.param({"tls": {"allowedClients": ["x"]}}, False, id="clients without a CA"),
        pytest.param({"tls": {"clientCAFile": ""}}, True, id="nothing said"),
    ],
)
def test_what_goes_together_is_said_by_both(server, good):
    document = {**HEAD, "server": server}
    assert valid(document, SCHEMA) is good
    assert (not refused_by_the_loader(document)) is good


@pytest.mark.parametrize(
    ("election", "good"),
    [
        pytest.param({"resourceNamespace": ""}, False, id="no namespace"),
        pytest.param({"resourceNamespace": "a.b"}, False, id="a namespace with a dot"),
        pytest.param({"resourceName": "Has_Capitals"}, False, id="no name of an object"),
        pytest.param({"resourceName": "a" * 64}, False, id="a long part"),
        pytest.param({"resourceName": "one\n"}, False, id="a line break"),
        pytest.param(
            {"resourceName": "scheduler.of-ours", "resourceNamespace": "n-1"}, True, id="names"
        ),
        pytest.param({"resourceName": None}, True, id="nothing said"),
    ],
)
def test_the_name_of_the_lease_is_a_name(election, good):
    document = {**HEAD, "leaderElection": election}
    assert valid(document, SCHEMA) is good
    assert (not refused_by_the_loader(document)) is good


@pytest.mark.parametrize(
    ("namespaces", "good"),
    [
        pytest.param(["a", "b-1"], True, id="names"),
        pytest.param(None, True, id="nothing said"),
        pytest.param([], True, id="all namespaces"),
        pytest.param(["a.b"], False, id="a namespace with a dot"),
        pytest.param(["a\n"], False, id="a line break"),
        pytest.param([""], False, id="an empty name"),
        pytest.param([1], False, id="a number"),
    ],
)
def test_the_namespaces_of_pools_are_names(namespaces, good):
    document = {**HEAD, "pools": {"namespaces": namespaces}}
    assert valid(document, SCHEMA) is good
    assert (not refused_by_the_loader(document)) is good


@pytest.mark.parametrize(
    ("server", "good"),
    [
        pytest.param({"healthPort": 10261}, False, id="the same port"),
        pytest.param(
            {"healthPort": 10261, "healthHost": "0.0.0.0"}, False, id="the same port everywhere"
        ),
        pytest.param(
            {"healthPort": 10261, "healthHost": "10.0.0.1"}, True, id="on another address"
        ),
        pytest.param({"port": 0, "healthPort": 0}, True, id="any port, and no second one"),
    ],
)
def test_two_listeners_have_two_addresses(server, good):
    assert (not refused_by_the_loader({**HEAD, "server": server})) is good


def test_every_setting_has_its_default_and_what_a_change_takes():
    for entry in SETTINGS:
        part = SCHEMA
        for step in entry.path.split("."):
            part = part["properties"][step]
        assert part["x-reload"] in {"live", "restart"}
        assert part["description"]
        assert valid(part["default"], part)
        json.dumps(part["default"])
