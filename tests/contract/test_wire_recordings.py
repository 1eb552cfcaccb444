"""What real kube-schedulers (1.36, and 1.22 by a Policy file) have sent is read whole, and the
reply they took is ours.
"""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.model.decode import pod_from
from extender.node import wire

RECORDINGS = Path(__file__).parent / "recordings"


def recording(name: str) -> tuple[dict[str, Any], Any]:
    """The request and the response of one recording."""
    raw = orjson.loads((RECORDINGS / name).read_bytes())
    return raw["request"], raw.get("response")


def names(prefix: str) -> list[str]:
    return sorted(path.name for path in RECORDINGS.glob(f"{prefix}-*.json"))


def lowered(value: Any, depth: int) -> Any:
    """The same JSON with lower-case keys down to ``depth`` objects, as old schedulers sent it."""
    if depth and isinstance(value, dict):
        return {key.lower(): lowered(item, depth - 1) for key, item in value.items()}
    return value


def node_names(request: dict[str, Any]) -> tuple[str, ...]:
    if request["NodeNames"] is not None:
        return tuple(request["NodeNames"])
    return tuple(node["metadata"]["name"] for node in request["Nodes"]["items"])


def test_there_are_recordings_of_all_verbs() -> None:
    assert all(names(verb) for verb in ("filter", "prioritize", "bind", "preempt"))


@pytest.mark.parametrize("name", names("filter") + names("prioritize"))
def test_extender_args_as_recorded(name: str) -> None:
    request, _ = recording(name)
    args = wire.decode_extender_args(json.dumps(request).encode())
    assert args.pod == request["Pod"]
    assert args.names == node_names(request)
    assert (args.nodes is None) == (request["Nodes"] is None)
    assert pod_from(args.pod).uid == request["Pod"]["metadata"]["uid"]


@pytest.mark.parametrize("name", names("filter") + names("prioritize"))
def test_extender_args_with_lower_case_keys_read_the_same(name: str) -> None:
    request, _ = recording(name)
    args = wire.decode_extender_args(orjson.dumps(request))
    assert wire.decode_extender_args(orjson.dumps(lowered(request, 1))) == args


@pytest.mark.parametrize("name", names("filter"))
def test_all_nodes_pass_and_come_back_in_the_form_they_came(name: str) -> None:
    request, _ = recording(name)
    args = wire.decode_extender_args(orjson.dumps(request))
    result = orjson.loads(wire.encode_filter_result(args, args.candidates, {}, {}))
    assert result["Error"] == ""
    assert result["NodeNames"] == request["NodeNames"]
    if request["Nodes"] is not None:
        assert result["Nodes"]["items"] == request["Nodes"]["items"]


@pytest.mark.parametrize("name", names("prioritize"))
def test_scores_as_recorded(name: str) -> None:
    request, response = recording(name)
    args = wire.decode_extender_args(orjson.dumps(request))
    scores = {item["Host"]: item["Score"] for item in response}
    assert orjson.loads(wire.encode_host_priorities(args, scores)) == response


@pytest.mark.parametrize("name", names("bind"))
def test_binding_args_as_recorded(name: str) -> None:
    request, response = recording(name)
    args = wire.decode_binding_args(orjson.dumps(request))
    assert [args.pod_name, args.pod_namespace, args.pod_uid, args.node] == [
        request[key] for key in ("PodName", "PodNamespace", "PodUID", "Node")
    ]
    assert orjson.loads(wire.encode_binding_result()) == response


@pytest.mark.parametrize("name", names("preempt"))
@pytest.mark.parametrize("depth", [0, 1], ids=["as sent", "lower-case keys"])
def test_preemption_args_and_the_answer_that_was_taken(name: str, depth: int) -> None:
    request, response = recording(name)
    args = wire.decode_preemption_args(orjson.dumps(lowered(request, depth)))
    whole = request["NodeNameToVictims"] is not None
    assert all((victims.pods is not None) == whole for victims in args.victims.values())
    assert orjson.loads(wire.encode_preemption_result(args, args.victims)) == response
