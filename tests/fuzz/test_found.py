"""What fuzzing has found, each as the smallest input that shows it."""

import json
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import yaml

from extender.cli.lint.command import run_check
from extender.engine.policy.knative_configmap import knative_document
from extender.engine.policy.profile_document import profile_from
from extender.engine.scaling.size import POOL_PODS_MAX
from extender.engine.state.manifests import Manifests
from extender.model.decode import pool_from, stateful_set_from, vpod_from
from extender.model.errors import InvalidObject, LedgerUnreadable, WireError
from extender.model.foreign_kinds import sources_from
from extender.model.ledger import decode_ledger
from extender.model.names import LEDGER_BYTES_MAX, POOL_LABEL
from extender.model.objects import Source, SourcePaths
from extender.model.translate import PlacementTranslator
from extender.service.http.schedule import vpod_of_request
from tests.fuzz.answer_targets import ERROR_BYTES_MAX, DecisionsQueryTarget, PlanRequestTarget
from tests.fuzz.answers_scene import JOURNAL
from tests.fuzz.extender_targets import FilterTarget
from tests.support.service import filter_args
from tests.webhook.builders import a_pod, a_pool_object, a_vpod_object, caches, review
from webhook.review import ReviewError, decode_review
from webhook.validate import DEFAULT_RULES, validate

DEEP = orjson.loads("[" * 1000 + "]" * 1000)
"""As deep as our JSON reader goes: deeper than Python prints or compares."""
SOURCE = Source(
    group="x.dev",
    versions=("v1",),
    resource="r",
    kind="K",
    paths=SourcePaths(vreplicas=("spec", "n"), placements=("status", "p")),
)
PLACE = {"group": "x.dev", "version": "v1", "resource": "r", "kind": "K"}


def a_request(**vpod: object) -> bytes:
    fields = {"namespace": "t", "name": "a", "vreplicas": 1, **vpod}
    return orjson.dumps({"vpod": fields, "pool": {"namespace": "n", "name": "p"}})


def deep_request(field: str) -> bytes:
    return a_request(**{field: "HERE"}).replace(b'"HERE"', b"[" * 1000 + b"]" * 1000)


@pytest.mark.parametrize(
    ("read", "error"),
    [
        pytest.param(
            lambda: pool_from(a_pool_object(minPods=DEEP)), InvalidObject, id="a count of a pool"
        ),
        pytest.param(
            lambda: vpod_from({**a_vpod_object(), "metadata": {"name": "a", "generation": DEEP}}),
            InvalidObject,
            id="a generation",
        ),
        pytest.param(
            lambda: PlacementTranslator(SOURCE).to_vpod(
                {"metadata": {"namespace": "t"}, "spec": {"n": DEEP}}
            ),
            InvalidObject,
            id="a foreign count",
        ),
        pytest.param(lambda: profile_from({"name": DEEP}), InvalidObject, id="a profile's name"),
        pytest.param(
            lambda: profile_from({"name": "p", "ties": DEEP}), InvalidObject, id="a profile's ties"
        ),
        pytest.param(
            lambda: profile_from({"name": "p", "rules": DEEP}),
            InvalidObject,
            id="a profile's rules",
        ),
        pytest.param(
            lambda: profile_from({"name": "p", "scores": [DEEP]}), InvalidObject, id="a plugin"
        ),
        pytest.param(
            lambda: profile_from({"name": "p", "scores": [{"name": DEEP}]}),
            InvalidObject,
            id="a plugin's name",
        ),
        pytest.param(
            lambda: profile_from({"name": "p", "scores": [{"name": "NodeSpread", "weight": DEEP}]}),
            InvalidObject,
            id="a weight",
        ),
        pytest.param(
            lambda: profile_from({"name": "p", "scores": [{"name": "ZoneSpread", "args": DEEP}]}),
            InvalidObject,
            id="arguments",
        ),
        pytest.param(
            lambda: profile_from(
                {
                    "name": "p",
                    "scores": [{"name": "AvailabilityZonePriority", "args": {"MaxSkew": DEEP}}],
                }
            ),
            InvalidObject,
            id="an argument",
        ),
        pytest.param(
            lambda: knative_document("k", {"data": DEEP}), InvalidObject, id="a ConfigMap's data"
        ),
        pytest.param(
            lambda: knative_document("k", {"data": {"priorities": [DEEP]}}),
            InvalidObject,
            id="a ConfigMap's entry",
        ),
        pytest.param(
            lambda: vpod_of_request(deep_request("deleted")),
            WireError,
            id="deleted, of a request to place",
        ),
        pytest.param(
            lambda: vpod_of_request(deep_request("name")),
            WireError,
            id="a name, of a request to place",
        ),
        pytest.param(
            lambda: decode_review(
                b'{"kind":'
                + orjson.dumps("x")
                + b',"apiVersion":'
                + b"[" * 1000
                + b"]" * 1000
                + b"}"
            ),
            ReviewError,
            id="a review's version",
        ),
    ],
)
def test_a_value_nested_too_deep_to_be_printed_is_refused_as_any_other(
    read: Callable[[], object], error: type[Exception]
):
    with pytest.raises(error) as caught:
        read()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("field", ["writeStatus", "preset", "paths"])
def test_a_source_nested_too_deep_to_be_printed_is_a_problem_as_any_other(field: str):
    value = {"vreplicas": DEEP, "placements": "status.p"} if field == "paths" else DEEP
    place = (
        {}
        if field == "preset"
        else {**PLACE, "paths": {"vreplicas": "spec.n", "placements": "status.p"}}
    )
    _, (problem,) = sources_from([{**place, field: value}])
    assert problem.startswith(f"spec.sources[0].{field}")


def test_a_selector_with_values_that_are_no_texts_selects_by_their_text():
    expression = {"key": "a", "operator": "In", "values": [5, DEEP]}
    pool = pool_from(a_pool_object(namespaceSelector={"matchExpressions": [expression]}))
    assert pool.namespace_selector.matches({"a": "5"})
    assert not pool.namespace_selector.matches({"a": "6"})


def test_a_stateful_set_with_a_node_selector_nested_too_deep_is_read():
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": [DEEP]}]}
        ]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    found = stateful_set_from({"spec": {"template": {"spec": {"affinity": affinity}}}})
    assert found.fit is not None


def test_a_number_too_long_to_be_printed_is_refused_as_any_other():
    """YAML reads hexadecimal numbers of any length; Python prints none of more than 4,300
    digits.
    """
    document = yaml.safe_load(
        f"{{name: p, scores: [{{name: NodeSpread, weight: 0x{'f' * 5000}}}]}}"
    )
    with pytest.raises(
        InvalidObject, match=r"scores\[0\].weight: must be an integer from 0 to 100"
    ):
        profile_from(document)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_pools_that_a_request_makes_up_are_not_remembered(verb: str):
    target = FilterTarget(verb)
    await target.open()
    for index in range(20):
        labels = {POOL_LABEL: f"made-up-{index}"}
        pod = {**target.pending, "metadata": {**target.pending["metadata"], "labels": labels}}
        await target.run(filter_args(pod, ["node-0"]))
    await target.check()


CONFIG_HEAD = "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n"
KUBE_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            CONFIG_HEAD + 'profiles: [{name: "\\ud800"}]',
            "profiles[0].name: is not Unicode",
            id="half a surrogate pair",
        ),
        pytest.param(
            CONFIG_HEAD + "profiles: [{name: a, knativeConfigMaps: {scheduler: x}, 1: x, b: y}]",
            "profiles[0]: 1 as a key",
            id="two sorts of keys",
        ),
        pytest.param(
            KUBE_HEAD + "profiles: " + "[" * 330 + "]" * 330,
            "is nested deeper than 100 levels",
            id="nested deep",
        ),
        pytest.param(
            KUBE_HEAD + f"extenders: [{{weight: 0x{'f' * 5000}}}]",
            "extenders[0].weight: is a number",
            id="a long number",
        ),
        pytest.param(
            KUBE_HEAD + "on: x", "True as a key", id="a key that YAML takes for a boolean"
        ),
    ],
)
def test_a_file_with_what_no_configuration_has_is_refused(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Each ended in a traceback, further on: while sorting, printing or writing it."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert run_check([str(path)]) != 0
    assert says in capsys.readouterr().out


def test_keys_of_two_sorts_in_a_manifest_are_refused():
    spec = {"template": {"spec": {"nodeSelector": {1: "a", "b": "c"}}}}
    document = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    with pytest.raises(
        InvalidObject, match=r"spec\.template\.spec\.nodeSelector: 1 as a key: must be a string"
    ):
        Manifests().add(document, "file.yaml")


def test_a_file_that_refers_to_itself_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "config.yaml"
    path.write_text(KUBE_HEAD + "x: &a [*a]")
    assert run_check([str(path)]) == 1
    assert "x: unknown field" in capsys.readouterr().out


def test_a_ledger_is_measured_in_bytes_and_not_in_characters():
    key = f"tenant/{'é' * 100}"
    text = orjson.dumps({f"{key}{index}": 1 for index in range(1_000)}).decode()
    assert len(text) < LEDGER_BYTES_MAX < len(text.encode())
    with pytest.raises(LedgerUnreadable, match="over the limit"):
        decode_ledger(text)


def test_a_small_file_that_stands_for_a_huge_value_is_refused_at_once():
    """Eight lists of eight references each to the list before: 128 bytes a line, and 8 to the power
    of the lines values.
    """
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 8)}]" for i in range(12)]
    document = yaml.safe_load("\n".join(lines))
    with pytest.raises(InvalidObject, match="ties: must be one of") as caught:
        profile_from({"name": "p", "ties": document["a11"]})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_name_in_a_manifest_that_no_file_or_terminal_can_hold_is_refused(field: str):
    """Half of a surrogate pair: JSON can say it, UTF-8 cannot, and a table of what is planned ended
    in a traceback.
    """
    metadata = {"name": "a", field: json.loads('"\\ud800"')}
    document = {"apiVersion": "vreplica.dev/v1alpha1", "kind": "VPod", "metadata": metadata}
    with pytest.raises(InvalidObject, match=f"metadata.{field}: is not Unicode"):
        Manifests().add(document, "file.json")


@pytest.mark.parametrize(
    ("what", "resource"),
    [
        (lambda deep: a_pod(annotations={"vreplica.dev/placements": deep}), "pods"),
        (lambda deep: a_pool_object(sources=deep), "adapterpools"),
    ],
    ids=["annotations", "sources"],
)
def test_two_values_nested_too_deep_to_be_compared_are_refused(
    what: Callable[[object], dict[str, object]], resource: str
):
    group = "" if resource == "pods" else "vreplica.dev"
    body = review(
        what("HERE"), operation="UPDATE", oldObject=what("HERE"), resource=resource, group=group
    )
    body = body.replace(b'"HERE"', b"[" * 990 + b"]" * 990)
    with pytest.raises(ReviewError, match="nested"):
        validate(decode_review(body), caches(), DEFAULT_RULES)


async def test_a_plan_for_a_pool_with_an_endless_name_is_refused_in_few_words():
    """The whole name came back, up to the mebibyte that a body may have."""
    target = PlanRequestTarget("plan-request")
    await target.open()
    try:
        assert (
            await target.run(orjson.dumps({"pool": "n/" + "x" * 2 * ERROR_BYTES_MAX}))
            == "Refused 404 KEY does not exist"
        )
    finally:
        await target.close()


@pytest.mark.parametrize("sign", ["", "-"])
async def test_a_journal_is_not_asked_for_by_a_number_of_thousands_of_digits(sign: str):
    """It came back in the answer, with all its digits."""
    target = DecisionsQueryTarget("decisions-query")
    await target.open()
    try:
        outcome = await target.run(f"since={sign}{'1' * 4_000}&journal={JOURNAL}".encode())
    finally:
        await target.close()
    assert outcome == "Refused 400 since must be a number, and wait seconds?"


@pytest.mark.parametrize("field", ["minPods", "maxPods"])
async def test_a_plan_for_more_pods_than_a_pool_can_have_is_refused(field: str):
    """Sizing it counts pods one by one: with 2**31 of them the thread did not end, and no question
    was answered after it.
    """
    added = [{"namespace": "t", "name": "x", "vreplicas": 2**31 - 1}]
    target = PlanRequestTarget("plan-request")
    await target.open()
    try:
        for most, status in (
            (2**31 - 1, "Refused 400"),
            (POOL_PODS_MAX + 1, "Refused 400"),
            (POOL_PODS_MAX, "200"),
        ):
            asked = {"set": {field: most}, "addVPods": added if most > POOL_PODS_MAX else []}
            assert (await target.run(orjson.dumps(asked))).startswith(status)
    finally:
        await target.close()
