"""A template's text without what only a Helm release has, comments and all else untouched."""

import pytest
import yaml

from tests.manifests.chart import documents, objects, plain

HASH = "0" * 64


@pytest.mark.parametrize(
    ("rendered", "left"),
    [
        pytest.param(
            'labels:\n    app.kubernetes.io/part-of: p\n    app.kubernetes.io/instance: "r"\n    '
            'helm.sh/chart: "c-1"\n',
            "labels:\n    app.kubernetes.io/part-of: p\n",
            id="labels of the release",
        ),
        pytest.param(
            f"      annotations:\n        checksum/config: {HASH}\n    spec:\n",
            "    spec:\n",
            id="the checksum alone",
        ),
        pytest.param(
            f"      annotations:\n        checksum/config: {HASH}\n        mine: x\n",
            f"      annotations:\n        checksum/config: {HASH}\n        mine: x\n",
            id="not beside others",
        ),
        pytest.param(
            "# Source: c/templates/a.yaml\n# why\nkind: A\n",
            "# why\nkind: A\n",
            id="comments of ours stay",
        ),
        pytest.param(
            "# helm.sh/chart: is a label\n",
            "# helm.sh/chart: is a label\n",
            id="a comment about it",
        ),
    ],
)
def test_it_is_taken_off(rendered: str, left: str):
    assert plain(rendered) == left


def test_documents_keep_their_comments_and_empty_ones_are_left_out():
    text = "---\n# first\nkind: A\n---\n# nothing here\n---\nkind: B\n# end\n"
    assert list(documents(text)) == ["# first\nkind: A\n", "kind: B\n# end\n"]


def test_a_text_within_a_document_is_not_taken_for_a_separator():
    text = "kind: ConfigMap\ndata:\n  a: |\n    x\n    ---\n    y\n"
    (found,) = documents(text)
    assert yaml.safe_load(found)["data"]["a"] == "x\n---\ny\n"


def test_objects_are_those_of_all_templates():
    found = objects({"a.yaml": "kind: A\n---\nkind: B\n", "b.yaml": "", "c.yaml": "kind: C\n"})
    assert [obj["kind"] for obj in found] == ["A", "B", "C"]
