"""What helm says after an installation: the commands in it are those for this installation."""

import pytest

from tests.manifests.chart import CHART, run_helm

pytestmark = pytest.mark.usefixtures("needs_helm")


def notes(*options: str) -> str:
    """The NOTES of release ``prod`` in namespace ``apart``."""
    where = ("--dry-run=client", "--namespace", "apart", "--set", "crds.install=false")
    said = run_helm("install", "prod", CHART, *where, *options)
    return said.partition("\nNOTES:\n")[2]


@pytest.mark.parametrize(
    ("option", "command"),
    [
        pytest.param("nameOverride=", "vreplica doctor --namespace apart ", id="default names"),
        pytest.param(
            "fullnameOverride=orders",
            "vreplica doctor --name orders --namespace apart ",
            id="a name of its own",
        ),
        pytest.param(
            "nameOverride=orders",
            "vreplica doctor --name prod-orders --namespace apart ",
            id="a name after the release",
        ),
        pytest.param(
            "namespaceOverride=other", "vreplica doctor --namespace other ", id="a namespace"
        ),
    ],
)
def test_doctor_is_shown_with_the_options_for_this_installation(option: str, command: str):
    assert command in notes("--set", option)


def test_the_command_line_is_not_said_to_be_on_an_index():
    found = notes()
    assert "pip install ." in found
    assert "pip install vreplica-scheduler" not in found
