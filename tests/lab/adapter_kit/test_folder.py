"""The folder that the kit shares with an adapter that runs already."""

import pytest

from extender.lab.adapter_kit.folder import SharedFolder
from extender.model.errors import VReplicaError


def test_an_adapter_that_runs_on_finds_the_same_pod_and_authority_in_the_next_run(tmp_path):
    first = SharedFolder(tmp_path / "kit")
    second = SharedFolder(tmp_path / "kit")
    assert (first.uid, first.token, first.pair) == (second.uid, second.token, second.pair)


def test_rounds_grow_from_run_to_run(tmp_path):
    first = SharedFolder(tmp_path)
    assert [first.next_round(), first.next_round()] == [0, 1]
    assert SharedFolder(tmp_path).next_round() == 2


def test_only_the_user_of_the_kit_can_read_the_key_of_its_authority(tmp_path):
    SharedFolder(tmp_path)
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "token"])
def test_files_that_the_kit_has_not_made_are_left_as_they_are(tmp_path, name):
    (tmp_path / name).write_text("of a cluster")
    with pytest.raises(VReplicaError, match=f"has {name}, which the kit has not made"):
        SharedFolder(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "content"),
    [("kit.json", "{"), ("kit.json", "[]"), ("ca.key", "none"), ("ca.crt", "none")],
)
def test_a_folder_whose_files_are_damaged_is_refused(tmp_path, name, content):
    SharedFolder(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(VReplicaError, match="Name another one"):
        SharedFolder(tmp_path)
