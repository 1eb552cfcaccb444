"""JSON that is nearly all structure is not decoded: an object of a few bytes takes 200 in
memory.
"""

from collections.abc import Callable

import orjson
import pytest

from extender.model.errors import WireError
from extender.model.reading import structure_problem
from extender.node.wire import decode_binding_args, decode_extender_args, decode_preemption_args
from extender.service.http.schedule import vpod_of_request
from tests.webhook.builders import a_pod, review
from webhook.review import ReviewError, decode_review

CHAIN = b'{"":' * 200 + b"0" + b"}" * 200
DEEP = b"[" + b",".join([CHAIN] * 600) + b"]"
FLAT = b"[" + b",".join([b'{"a":0}'] * 60_000) + b"]"
WIDE = b"[" + b",".join([b"0"] * 60_000) + b"]"


@pytest.mark.parametrize(
    "text",
    [pytest.param(DEEP, id="deep"), pytest.param(FLAT, id="flat"), pytest.param(WIDE, id="wide")],
)
@pytest.mark.parametrize(
    "decode",
    [
        decode_extender_args,
        decode_binding_args,
        decode_preemption_args,
        decode_review,
        vpod_of_request,
    ],
)
def test_it_is_refused_by_whatever_reads_a_request(text: bytes, decode: Callable[[bytes], object]):
    with pytest.raises((WireError, ReviewError), match=r"(objects and lists|values) in \d+ bytes"):
        decode(b'{"x":' + text + b"}")


def a_node(number: int) -> dict[str, object]:
    """As large nodes are: labels, conditions, and 50 images."""
    images = [
        {"names": [f"registry.example/{i}@sha256:{i:064}"], "sizeBytes": i} for i in range(50)
    ]
    conditions = [{"type": f"c{i}", "status": "False", "message": "m" * 60} for i in range(5)]
    labels = {f"example.dev/label-{i}": "value" for i in range(30)}
    metadata = {"name": f"node-{number}", "labels": labels}
    return {"metadata": metadata, "status": {"images": images, "conditions": conditions}}


def test_what_kube_scheduler_and_the_api_server_send_is_not():
    nodes = [a_node(number) for number in range(2_000)]
    assert structure_problem(orjson.dumps({"Pod": a_pod(), "Nodes": {"items": nodes}})) == ""
    names = [f"n{number}" for number in range(20_000)]
    assert structure_problem(orjson.dumps({"Pod": a_pod(), "NodeNames": names})) == ""
    managed: dict[str, object] = {
        "f:metadata": {"f:labels": {f"f:label-{i}": {} for i in range(3_000)}}
    }
    pod = a_pod()
    pod["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": managed}] * 5
    assert structure_problem(review(pod)) == ""
