"""Reviews as a real API server sent them (see tests/contract/recordings), posted to the running
webhook byte by byte.

They were recorded with an earlier name of the label, so as they are they belong to no pool; each is
also sent with the label that pods have now.
"""

import base64
import copy
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import orjson
import pytest

from extender.kube.api import Obj
from tests.webhook.builders import (
    PLACEMENTS,
    POOL_LABEL,
    SLOTS,
    a_pool_object,
    caches,
    patched,
)
from webhook.server import WebhookServer
from webhook.validate import DEFAULT_RULES

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("mutate-*.json"))


def test_there_are_recordings():
    assert len(RECORDINGS) == 3


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.stem)
def recording(request):
    return orjson.loads(request.param.read_bytes())


@pytest.fixture
async def answer():
    """Sends a review with the recorded headers, and returns the answer's document."""
    pool = a_pool_object("adapter")
    pool["metadata"]["namespace"] = "default"
    server = WebhookServer(caches(pools=[pool]), DEFAULT_RULES, tls=None)
    port = await server.start("127.0.0.1", 0)

    async def send(headers: Mapping[str, str], review: Obj, path: str = "/mutate") -> Obj:
        # Host and length are the connection's own; the rest goes as it was recorded.
        sent = {
            name: value for name, value in headers.items() if name not in {"Host", "Content-Length"}
        }
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"http://127.0.0.1:{port}{path}?timeout=3s", data=orjson.dumps(review), headers=sent
            ) as response,
        ):
            assert response.status == 200
            assert response.content_type == "application/json"
            answered: Obj = orjson.loads(await response.read())
            return answered

    yield send
    await server.stop()


def labelled(recording: Obj) -> Obj:
    review: Obj = copy.deepcopy(recording["request"])
    review["request"]["object"]["metadata"]["labels"][POOL_LABEL] = "adapter"
    return review


async def test_a_recorded_pod_of_no_pool_is_allowed_without_a_patch(recording, answer):
    got = await answer(recording["headers"], recording["request"])
    assert got["response"] == {"uid": recording["request"]["request"]["uid"], "allowed": True}


async def test_the_answer_has_the_form_that_the_api_server_accepted_then(recording, answer):
    got = await answer(recording["headers"], labelled(recording))
    accepted = recording["response"]
    assert {key: got[key] for key in ("apiVersion", "kind")} == {
        key: accepted[key] for key in ("apiVersion", "kind")
    }
    assert set(got["response"]) == set(accepted["response"])
    assert got["response"]["uid"] == accepted["response"]["uid"]


async def test_the_patch_applies_to_the_recorded_pod_and_changes_nothing_else(recording, answer):
    review = labelled(recording)
    pod = review["request"]["object"]
    got = await answer(recording["headers"], review)
    after = patched(pod, orjson.loads(base64.b64decode(got["response"]["patch"])))
    assert after["metadata"].pop("annotations") == {SLOTS: "20", PLACEMENTS: "{}"}
    assert after["spec"].pop("schedulerName") == "vreplica-scheduler"
    expected = copy.deepcopy(pod)
    del expected["spec"]["schedulerName"]
    assert after == expected


async def test_validation_lets_the_stamped_pod_pass_under_the_same_user(recording, answer):
    review = labelled(recording)
    got = await answer(recording["headers"], review)
    ops = orjson.loads(base64.b64decode(got["response"]["patch"]))
    review["request"]["object"] = patched(review["request"]["object"], ops)
    got = await answer(recording["headers"], review, "/validate")
    assert got["response"]["allowed"] is True
