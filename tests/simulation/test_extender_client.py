"""The extender client beyond the conformance cases: Go's JSON, what is sent, the transport, the
configuration files.
"""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given, strategies as st

from extender.config.kube_scheduler import ExtenderConfig, ManagedResource, ProfileConfig, validate
from extender.config.kube_scheduler_file import (
    InvalidConfiguration,
    duration_s,
    load_configuration,
    read_configuration,
    read_policy,
)
from extender.kube.api import Obj
from extender.lab.scheduler import go_json
from extender.lab.scheduler.cache import SchedulerCache
from extender.lab.scheduler.extender_client import (
    ExtenderError,
    HTTPExtender,
    Victims,
    build_extenders,
)
from extender.lab.scheduler.extender_transport import AiohttpTransport, TransportError
from extender.lab.scheduler.go_json_scanner import GoJSONError, Scanner
from extender.lab.scheduler.types import NodeInfo, node_view, pod_info

RECORDINGS = Path(__file__).parents[1] / "contract" / "recordings"

# Go's JSON


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "EOF"),
        ("  ", "EOF"),
        ('{"Error": "x', "unexpected EOF"),
        ("[1,", "unexpected EOF"),
        ("{'a'", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("nul!", "invalid character '!' in literal null (expecting 'l')"),
        ("01x", None),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ('"\n"', "invalid character '\\n' in string literal"),
        ('"\\q"', "invalid character 'q' in string escape code"),
        ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("<html>", "invalid character '<' looking for beginning of value"),
    ],
)
def test_bodies_that_go_cannot_read_fail_in_its_words(body, text):
    if text is None:
        Scanner(body.encode()).first_value()
        return
    with pytest.raises(GoJSONError) as caught:
        Scanner(body.encode()).first_value()
    assert str(caught.value) == text


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES, st.booleans())
def test_what_python_writes_is_read_back_whole(value, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    read = go_json.plain(Scanner(body).first_value())
    assert read == json.loads(json.dumps(value).encode().decode())


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(body):
    with suppress(GoJSONError):
        Scanner(body).first_value()


def test_very_deep_bodies_are_refused():
    with pytest.raises(GoJSONError, match="exceeded max depth"):
        Scanner(b"[" * 100_000).first_value()


# What is sent


def an_extender(
    config: ExtenderConfig, answer: object
) -> tuple[HTTPExtender, list[tuple[str, Obj]]]:
    sent: list[tuple[str, Obj]] = []

    async def transport(url: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        sent.append((url, orjson.loads(body)))
        return 200, orjson.dumps(answer)

    return HTTPExtender(config, transport), sent


def recorded(name: str):
    return json.loads((RECORDINGS / name).read_text())


async def test_filter_sends_what_kube_scheduler_was_recorded_to_send():
    recording = recorded("filter-1.json")
    request = recording["request"]
    pod = pod_info({"apiVersion": "v1", "kind": "Pod", **request["Pod"]})
    nodes = [NodeInfo(node_view({"metadata": {"name": name}})) for name in request["NodeNames"]]
    config = ExtenderConfig(url_prefix="http://e", filter_verb="filter", node_cache_capable=True)
    extender, sent = an_extender(config, recording["response"])
    result = await extender.filter(pod, nodes)
    assert sent == [("http://e/filter", request)]
    assert [node.name for node in result.nodes or ()] == recording["response"]["NodeNames"]


@pytest.mark.parametrize(
    ("name", "cached"), [("preempt-meta-1.json", True), ("preempt-full-1.json", False)]
)
async def test_preempt_sends_victims_by_uid_or_whole(name, cached):
    recording = recorded(name)
    request = recording["request"]
    cache = SchedulerCache()
    victims = {}
    whole = recorded("preempt-full-1.json")["request"]["NodeNameToVictims"]
    answer = recording["response"]["NodeNameToMetaVictims"]
    for node in answer:
        cache.put_node(node_view({"metadata": {"name": node}}))
        obj = whole[node]["Pods"][0]
        if cached:
            obj = {**obj, "metadata": {**obj["metadata"], "uid": answer[node]["Pods"][0]["UID"]}}
        cache.put_pod(pod_info(obj))
        victims[node] = Victims((pod_info(obj),))
    config = ExtenderConfig(
        url_prefix="http://e", preempt_verb="preempt", node_cache_capable=cached
    )
    extender, sent = an_extender(config, recording["response"])
    result = await extender.process_preemption(pod_info(request["Pod"]), victims, cache.snapshot())
    assert sent == [("http://e/preempt", request)]
    assert {n: [p.uid for p in v.pods] for n, v in result.items()} == {
        n: [p.uid for p in v.pods] for n, v in victims.items()
    }


def test_ignorable_extenders_come_last():
    async def transport(url: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        raise AssertionError

    configs = [
        ExtenderConfig(url_prefix="a", ignorable=True),
        ExtenderConfig(url_prefix="b"),
        ExtenderConfig(url_prefix="c"),
    ]
    assert [extender.name for extender in build_extenders(configs, transport)] == ["b", "c", "a"]


async def test_an_unknown_node_in_an_answer_is_refused_with_the_snapshots_words():
    config = ExtenderConfig(url_prefix="http://e", preempt_verb="preempt")
    extender, _ = an_extender(config, {"NodeNameToMetaVictims": {"zzz": {"Pods": []}}})
    pod = pod_info({"metadata": {"name": "p"}})
    with pytest.raises(ExtenderError, match='nodeinfo not found for node name "zzz"'):
        await extender.process_preemption(pod, {}, SchedulerCache().snapshot())


# The transport


async def test_nobody_listening_is_connection_refused():
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    transport = AiohttpTransport([])
    with pytest.raises(TransportError) as caught:
        await transport(f"http://127.0.0.1:{port}/x", b"{}", 2.0)
    await transport.close()
    assert str(caught.value) == f"dial tcp 127.0.0.1:{port}: connect: connection refused"


# Configuration files

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: vreplica-scheduler
  percentageOfNodesToScore: 100
extenders:
- urlPrefix: https://127.0.0.1:8443/v1
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  preemptVerb: preempt
  weight: 5
  enableHTTPS: true
  tlsConfig: {caFile: /ca.crt, serverName: extender.svc}
  httpTimeout: 1m30.5s
  nodeCacheCapable: true
  managedResources:
  - {name: vreplica.dev/slots, ignoredByScheduler: true}
"""


def test_a_configuration_is_read_with_kube_schedulers_defaults():
    config = load_configuration(CONFIGURATION)
    assert config.profiles == (ProfileConfig("vreplica-scheduler", 100),)
    assert (config.pod_initial_backoff_s, config.pod_max_backoff_s) == (1, 10)
    assert config.ignored_resources == {"vreplica.dev/slots"}
    extender = config.extenders[0]
    assert (extender.http_timeout_s, extender.weight, extender.tls.server_name) == (
        90.5,
        5,
        "extender.svc",
    )
    assert not extender.ignorable


def a_policy(http_timeout: int) -> Obj:
    return {
        "kind": "Policy",
        "apiVersion": "v1",
        "predicates": [{"name": "PodFitsResources"}],
        "extenders": [
            {
                "urlPrefix": "http://e",
                "filterVerb": "f",
                "enableHttps": False,
                "httpTimeout": http_timeout,
            }
        ],
    }


def test_the_legacy_policy_counts_its_timeout_in_nanoseconds():
    config, errors = read_policy(a_policy(5_000_000_000))
    assert errors == []
    assert config.extenders[0].http_timeout_s == 5.0


def test_nanoseconds_that_no_64_bits_hold_are_wrong():
    """Found by fuzzing, in the millionth input: no float holds them either."""
    _, errors = read_policy(a_policy(10**400))
    assert [error.field for error in errors] == ["extenders[0].httpTimeout"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds", id="no backoff"),
        pytest.param(
            {"podMaxBackoffSeconds": 0}, "podMaxBackoffSeconds", id="maximum below initial"
        ),
        pytest.param(
            {"percentageOfNodesToScore": 101}, "percentageOfNodesToScore", id="percentage"
        ),
        pytest.param(
            {"extenders": [{"httpTimeout": 5}]},
            "extenders[0].httpTimeout",
            id="timeout as a number",
        ),
        pytest.param(
            {"extenders": [{"httpTimeout": "5"}]},
            "extenders[0].httpTimeout",
            id="timeout without unit",
        ),
        pytest.param(
            {"extenders": [{"httpTimeout": "99999999999h"}]},
            "extenders[0].httpTimeout",
            id="timeout beyond Go's",
        ),
        pytest.param(
            {"extenders": [{"weight": 10**400}]}, "extenders[0].weight", id="weight beyond Go's"
        ),
        pytest.param(
            {"extenders": [{"filterverb": "x"}]}, "extenders[0].filterverb", id="misspelt"
        ),
        pytest.param(
            {"profiles": [{}, {"schedulerName": "a"}]},
            "profiles[0].schedulerName",
            id="nameless profile",
        ),
        pytest.param(
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "profiles[1].schedulerName",
            id="twice",
        ),
        pytest.param(
            {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "apiVersion", id="old version"
        ),
    ],
)
def test_what_kube_scheduler_refuses_is_named_by_its_field(change, field):
    base = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    _, errors = read_configuration({**base, **change})
    assert [error.field for error in errors] == [field]


def test_loading_an_invalid_file_names_everything_that_is_wrong():
    with pytest.raises(InvalidConfiguration) as caught:
        load_configuration(
            CONFIGURATION.replace("weight: 5", "weight: 0").replace("vreplica.dev/slots", "cpu")
        )
    assert [error.field for error in caught.value.errors] == [
        "extenders[0].weight",
        "extenders[0].managedResources[0].name",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("1m30s", 90),
        ("100ms", 0.1),
        ("1.5h", 5400),
        ("0", 0),
        ("-2s", -2),
        ("1us", 1e-6),
    ],
)
def test_go_durations(text, seconds):
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "1d", "5s!"])
def test_what_is_not_a_go_duration(text):
    with pytest.raises(ValueError, match="invalid duration"):
        duration_s(text)


def test_managed_resources_are_unique_over_all_extenders():
    config = load_configuration(CONFIGURATION)
    twice = (
        *config.extenders,
        ExtenderConfig(managed_resources=(ManagedResource("vreplica.dev/slots"),)),
    )
    errors = validate(type(config)(extenders=twice))
    assert [error.detail for error in errors] == ["duplicate extender managed resource name"]
