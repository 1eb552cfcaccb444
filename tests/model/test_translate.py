"""Objects of foreign kinds to vpods, and placements back to their statuses in their own shape."""

import pytest
from hypothesis import given, strategies as st

from extender.kube.api import Obj
from extender.lab.apiserver.patch import merge_patch
from extender.model.errors import InvalidObject
from extender.model.foreign_kinds import PRESETS
from extender.model.objects import Source, SourcePaths
from extender.model.translate import PlacementTranslator

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
            scheduled=("status", "deep", "n"),
        ),
    )
)


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
        assert [(c.type, c.status) for c in vpod.conditions] == [("Scheduled", "False")]
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
