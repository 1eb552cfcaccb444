import base64
import contextlib
import re

import orjson
import pytest
from hypothesis import given, strategies as st

from tests.webhook.builders import a_pod, review
from webhook.review import ReviewError, Verdict, decode_review, denied, encode_review


def changed(**fields) -> bytes:
    return orjson.dumps({**orjson.loads(review(a_pod())), **fields})


def changed_request(**fields) -> bytes:
    document = orjson.loads(review(a_pod()))
    document["request"].update(fields)
    return orjson.dumps(document)


def test_a_request_is_read():
    request = decode_review(review(a_pod(), name="dispatcher-1", dryRun=True, subResource=""))
    assert (request.uid, request.group, request.resource, request.operation) == (
        "u-1",
        "",
        "pods",
        "CREATE",
    )
    assert (request.name, request.old_object) == ("dispatcher-1", None)
    assert request.object == a_pod()


def test_absent_and_null_optional_fields_are_tolerated():
    request = decode_review(
        changed_request(userInfo=None, namespace=None, object=None, dryRun=None, options=7)
    )
    assert (request.username, request.namespace, request.object) == ("", "", None)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b'{"request":', "not JSON", id="cut off"),
        pytest.param(b"\xff\xfe{}", "not JSON", id="not UTF-8"),
        pytest.param(b"[" * 5000, "not JSON", id="deep"),
        pytest.param(b"[]", "a list", id="a list"),
        pytest.param(b"null", "null", id="null"),
        pytest.param(
            changed(apiVersion="admission.k8s.io/v1beta1"), "v1beta1", id="another version"
        ),
        pytest.param(changed(kind="Pod"), "'Pod'", id="another kind"),
        pytest.param(
            changed(request=None), "request: expected an object", id="an answer, not a request"
        ),
        pytest.param(changed_request(uid=""), "request.uid", id="no uid"),
        pytest.param(changed_request(uid="x" * 300), "request.uid", id="a long uid"),
        pytest.param(
            changed_request(uid=7),
            "request.uid: expected a string, not a number",
            id="uid a number",
        ),
        pytest.param(changed_request(resource=None), "request.resource.resource", id="no resource"),
        pytest.param(changed_request(operation=None), "request.operation", id="no operation"),
        pytest.param(
            changed_request(object=[1]),
            "request.object: expected an object, not a list",
            id="object a list",
        ),
        pytest.param(changed_request(oldObject="x"), "request.oldObject", id="old object a string"),
        pytest.param(
            changed_request(userInfo={"username": 1}),
            "request.userInfo.username",
            id="username a number",
        ),
    ],
)
def test_what_is_no_review_is_refused_with_the_field_that_is_wrong(body, says):
    with pytest.raises(ReviewError, match=re.escape(says)) as raised:
        decode_review(body)
    assert raised.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.binary(max_size=200) | JSON.map(orjson.dumps))
def test_no_bytes_raise_anything_else(body):
    with pytest.raises(ReviewError):
        decode_review(body)


@given(st.sampled_from(list(orjson.loads(review(a_pod()))["request"])), JSON)
def test_no_value_of_any_field_raises_anything_else(field, value):
    with contextlib.suppress(ReviewError):
        decode_review(changed_request(**{field: value}))


def test_a_patch_travels_as_base64():
    ops = [{"op": "add", "path": "/x", "value": "ü"}]
    response = orjson.loads(encode_review("u-9", Verdict(patch=ops)))["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == (
        "u-9",
        True,
        "JSONPatch",
    )
    assert orjson.loads(base64.b64decode(response["patch"])) == ops


def test_no_change_is_no_patch_at_all():
    assert orjson.loads(encode_review("u", Verdict()))["response"] == {"uid": "u", "allowed": True}


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (422, "Invalid")])
def test_a_denial_says_why_with_a_status(code, reason):
    response = orjson.loads(encode_review("u", denied("no\nway\x1b[31m", code=code)))["response"]
    assert response["status"] == {"code": code, "reason": reason, "message": "no way [31m"}


def test_warnings_are_short_few_and_printable():
    verdict = Verdict(warnings=["a\tb", "x" * 1000, *"123456789"])
    warnings = orjson.loads(encode_review("u", verdict))["response"]["warnings"]
    assert warnings[0] == "a b"
    assert len(warnings[1]) == 256
    assert len(warnings) == 8
