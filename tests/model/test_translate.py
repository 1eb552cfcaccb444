"""Objects of foreign kinds to vpods, and placements back to their statuses in their own shape."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, strategies as st

from extender.kube.api import Obj
from extender.lab.apiserver.patch import merge_patch
from extender.model.errors import InvalidObject
from extender.model.foreign_kinds import PRESETS
from extender.model.objects import Condition, Source, SourcePaths
from extender.model.translate import CONDITIONS_BYTES_MAX, PlacementTranslator

GROUPS = PlacementTranslator(PRESETS["knative-consumergroup"])
KAFKA = PlacementTranslator(PRESETS["knative-kafkasource"])
OWN = PlacementTranslator(
    Source(
        group="x.dev",
        versions=("v1",),
        resource="things",
        kind="Thing",
        paths=SourcePaths(
            vreplicas=("spec", "n"),
            placements=("status", "deep", "where"),
            pod_name="pod",
            count="n",
            slots_per_vreplica=("spec", "weight"),
            per_vreplica=("spec", "takes"),
            scheduled=("status", "deep", "n"),
        ),
    )
)

THEIRS: Obj = {"type": "Ready", "status": "Unknown", "severity": "", "more": {"a": [1, None]}}
OURS: Obj = {
    "type": "vreplica.dev/Moved",
    "status": "True",
    "reason": "Drain",
    "message": "moved",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def status_in(patch: dict[str, object] | None) -> Obj:
    assert patch is not None
    status = patch["status"]
    assert isinstance(status, dict)
    return status


def an_object(spec: Obj | None = None, status: Obj | None = None, **metadata) -> Obj:
    found: Obj = {
        "metadata": {"namespace": "t", "name": "a", "uid": "u", "resourceVersion": "7", **metadata}
    }
    return (
        found
        | ({"spec": spec} if spec is not None else {})
        | ({"status": status} if status is not None else {})
    )


class TestToVPod:
    def test_a_consumer_group(self):
        listed = [{"podName": "d-10", "vreplicas": 1}, {"podName": "d-2", "vreplicas": 2}]
        vpod = GROUPS.to_vpod(
            an_object({"replicas": 5}, {"placements": listed, "replicas": 1}, generation=4), "k/p"
        )
        assert vpod.key == "t/a@consumergroup.internal.kafka.eventing.knative.dev"
        assert (vpod.pool, vpod.uid, vpod.resource_version, vpod.vreplicas, vpod.weight) == (
            "k/p",
            "u",
            "7",
            5,
            1,
        )
        assert list(vpod.placements.items()) == [("d-2", 2), ("d-10", 1)]
        assert (vpod.generation, vpod.observed_generation, vpod.scheduled_vreplicas) == (4, 4, 3)
        assert (vpod.conditions, vpod.conditions_json) == ((), b"")
        assert not vpod.deleting

    @pytest.mark.parametrize("translator", [GROUPS, KAFKA], ids=["ConsumerGroup", "KafkaSource"])
    def test_knatives_kinds_want_one_where_they_say_nothing(self, translator):
        assert translator.to_vpod(an_object({})).vreplicas == 1

    @pytest.mark.parametrize(("limit", "wanted"), [(None, 9), (20, 9), (4, 4), (0, 0)])
    def test_a_kafka_source_wants_no_more_than_it_is_allowed(self, limit, wanted):
        status = {} if limit is None else {"maxAllowedVReplicas": limit}
        assert KAFKA.to_vpod(an_object({"consumers": 9}, status)).vreplicas == wanted

    def test_paths_of_ones_own(self):
        vpod = OWN.to_vpod(
            an_object({"n": 4, "weight": 3}, {"deep": {"where": [{"pod": "d-0", "n": 4}], "n": 4}}),
        )
        assert (vpod.vreplicas, vpod.weight, dict(vpod.placements)) == (4, 3, {"d-0": 4})
        assert [(c.type, c.status) for c in vpod.conditions] == [("Scheduled", "True")]

    def test_of_the_conditions_only_ours_are_the_vpods_and_all_are_kept_for_a_write(self):
        vpod = GROUPS.to_vpod(an_object({}, {"conditions": [THEIRS, OURS]}))
        assert vpod.conditions == (
            Condition("Moved", "True", "Drain", "moved", "2026-01-01T00:00:00Z"),
        )
        assert vpod.conditions_json is not None
        assert orjson.loads(vpod.conditions_json) == [THEIRS, OURS]

    def test_a_kind_without_a_place_for_conditions_is_scheduled_as_its_placements_say(self):
        vpod = OWN.to_vpod(an_object({"n": 4}, {"conditions": [THEIRS, OURS]}))
        assert [(c.type, c.status) for c in vpod.conditions] == [("Scheduled", "False")]
        assert vpod.conditions_json is None

    @pytest.mark.parametrize(
        "conditions",
        [
            pytest.param(
                [{**THEIRS, "message": "x" * CONDITIONS_BYTES_MAX}], id="more than is kept"
            ),
            pytest.param([{**THEIRS, "more": nested(300)}], id="too deep"),
        ],
    )
    def test_conditions_that_cannot_be_repeated_are_not_written_and_stop_nothing(self, conditions):
        obj = an_object({"replicas": 1}, {"conditions": conditions})
        vpod = GROUPS.to_vpod(obj)
        assert vpod.conditions_json is None
        assert [(c.type, c.status) for c in vpod.conditions] == [("Scheduled", "False")]
        patch = GROUPS.status_of(vpod, {"d-0": 1}, [Condition("Scheduled", "True")])
        assert set(status_in(patch)) == {"placements"}

    def test_one_that_is_being_deleted(self):
        assert GROUPS.to_vpod(an_object({}, deletionTimestamp="2026-01-01T00:00:00Z")).deleting

    @pytest.mark.parametrize(
        ("translator", "obj", "message"),
        [
            pytest.param(OWN, an_object({}), "Thing t/a: spec.n: is required", id="no default"),
            pytest.param(
                OWN,
                an_object({"n": 1}, namespace=""),
                "Thing a: metadata.namespace: is required",
                id="cluster-wide",
            ),
            pytest.param(
                GROUPS,
                an_object({"replicas": "3"}),
                "ConsumerGroup t/a: spec.replicas: must be an int",
                id="text",
            ),
            pytest.param(
                OWN,
                an_object({"n": 1, "weight": 0}),
                "spec.weight: must be an integer from 1",
                id="weight",
            ),
            pytest.param(
                OWN,
                an_object({"n": 1}, {"deep": {"where": [{"podName": "d-0", "n": 1}]}}),
                "Thing t/a: status.deep.where[0].pod: is required",
                id="another's key",
            ),
            pytest.param(
                GROUPS,
                an_object({}, {"placements": {"d-0": 1}}),
                "ConsumerGroup t/a: status.placements: must be a list",
                id="placements as a mapping",
            ),
            pytest.param(
                GROUPS,
                an_object({}, {"conditions": {"type": "Ready"}}),
                "ConsumerGroup t/a: status.conditions: must be a list of conditions",
                id="conditions as a mapping",
            ),
            pytest.param(
                GROUPS,
                an_object({}, {"conditions": ["Ready"]}),
                "ConsumerGroup t/a: status.conditions: must be a list of conditions",
                id="conditions as texts",
            ),
        ],
    )
    def test_what_cannot_be_read_is_named(self, translator, obj, message):
        with pytest.raises(InvalidObject) as caught:
            translator.to_vpod(obj)
        assert str(caught.value).startswith(message) or message in str(caught.value)


class TestStatusOf:
    def test_only_the_placements_of_a_consumer_group_are_written(self):
        vpod = GROUPS.to_vpod(an_object({"replicas": 3}, {"replicas": 0, "conditions": []}))
        assert GROUPS.status_of(vpod, {"d-0": 2, "d-1": 1}) == {
            "metadata": {"resourceVersion": "7", "uid": "u"},
            "status": {
                "placements": [
                    {"podName": "d-0", "vreplicas": 2},
                    {"podName": "d-1", "vreplicas": 1},
                ]
            },
        }

    def test_a_kafka_source_has_its_count_beside_them(self):
        patch = KAFKA.status_of(KAFKA.to_vpod(an_object({"consumers": 2})), {"d-0": 2})
        assert patch is not None
        assert patch["status"] == {
            "placements": [{"podName": "d-0", "vreplicas": 2}],
            "consumers": 2,
        }

    def test_a_count_that_somebody_else_has_changed_is_written_again(self):
        listed = [{"podName": "d-0", "vreplicas": 2}]
        there = KAFKA.to_vpod(an_object({"consumers": 2}, {"placements": listed, "consumers": 2}))
        assert KAFKA.status_of(there, {"d-0": 2}) is None
        changed = KAFKA.to_vpod(an_object({"consumers": 2}, {"placements": listed, "consumers": 1}))
        assert KAFKA.status_of(changed, {"d-0": 2}) is not None

    def test_our_conditions_replace_those_of_their_types_and_leave_the_others_as_they_are(self):
        scheduled = {**OURS, "type": "vreplica.dev/Scheduled"}
        stored = [scheduled, THEIRS, OURS, {"type": 3}, scheduled]
        vpod = GROUPS.to_vpod(an_object({"replicas": 0}, {"conditions": stored}))
        new = Condition(
            "Scheduled", "False", "InsufficientSlots", "no room", "2026-02-02T00:00:00Z"
        )
        patch = GROUPS.status_of(vpod, {}, [new])
        assert status_in(patch)["conditions"] == [
            THEIRS,
            OURS,
            {"type": 3},
            {
                "type": "vreplica.dev/Scheduled",
                "status": "False",
                "severity": "Info",
                "reason": "InsufficientSlots",
                "message": "no room",
                "lastTransitionTime": "2026-02-02T00:00:00Z",
            },
        ]
        after = an_object({"replicas": 0}, status_in(patch))
        assert GROUPS.to_vpod(after).conditions[-1] == new

    def test_conditions_in_a_place_of_their_own(self):
        deep = PlacementTranslator(
            replace(OWN.source, paths=replace(OWN.source.paths, conditions=("status", "deep", "c")))
        )
        patch = deep.status_of(
            deep.to_vpod(an_object({"n": 1})), {"d-0": 1}, [Condition("Available", "True")]
        )
        deep_status = status_in(patch)["deep"]
        assert deep_status["c"][0]["type"] == "vreplica.dev/Available"
        assert deep_status["n"] == 1

    def test_an_object_without_placements_gets_none_written(self):
        assert GROUPS.status_of(GROUPS.to_vpod(an_object({"replicas": 0})), {}) is None

    @given(
        st.dictionaries(st.sampled_from([f"d-{n}" for n in range(12)]), st.integers(1, 5)),
        st.sampled_from([GROUPS, KAFKA, OWN]),
    )
    def test_what_is_written_reads_as_it_was_meant_and_leaves_the_rest_alone(
        self, placements, translator
    ):
        obj = an_object({"n": 3}, {"theirs": {"a": [1]}, "deep": {"theirs": 2}})
        placements = dict(sorted(placements.items(), key=lambda item: int(item[0][2:])))
        patch = translator.status_of(translator.to_vpod(obj), placements)
        if patch is None:
            assert not placements
            return
        after = merge_patch(obj, {"status": patch["status"]})
        assert dict(translator.to_vpod(after).placements) == placements
        assert after["status"]["theirs"] == {"a": [1]}
        assert after["status"]["deep"]["theirs"] == 2
        assert translator.status_of(translator.to_vpod(after), placements) is None


def a_thing(takes: object) -> Obj:
    metadata = {"name": "a", "namespace": "t", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"n": 2, "takes": takes}}


def test_an_object_says_what_its_vreplicas_take_of_capacities():
    vpod = OWN.to_vpod(a_thing({"memory": 64, "cpu": 250}), "ns/pool")
    assert vpod.per_vreplica == (("cpu", 250), ("memory", 64))
    assert OWN.to_vpod(a_thing(None), "ns/pool").per_vreplica == ()


@pytest.mark.parametrize("takes", [{"cpu": -1}, {"cpu": "250m"}, {"cpu": 2**31}, {"CPU": 1}, [1]])
def test_an_absurd_amount_is_refused_by_its_path(takes: object):
    with pytest.raises(InvalidObject, match=r"spec\.takes"):
        OWN.to_vpod(a_thing(takes), "ns/pool")
