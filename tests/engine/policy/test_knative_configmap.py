"""Knative's ConfigMaps as its releases shipped them, and what is wrong with some of them."""

import pytest
import yaml

from extender.engine.policy.availability import (
    AvailabilityZonePriority,
    RemoveWithAvailabilityZonePriority,
)
from extender.engine.policy.even_pod_spread import EvenPodSpread, RemoveWithEvenPodSpreadPriority
from extender.engine.policy.framework import Weighted
from extender.engine.policy.knative_configmap import knative_document
from extender.engine.policy.ordinals import LowestOrdinalPriority, RemoveWithHighestOrdinalPriority
from extender.engine.policy.profile import Profile
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.resources import NoMaxResourceCount, PodFitsResources
from extender.model.errors import InvalidObject

# The shape of the ConfigMaps that eventing-kafka-broker installed (keys and plugins; spacing is
# ours).
SCHEDULER = r"""
apiVersion: v1
kind: ConfigMap
metadata: {name: config-kafka-scheduler, namespace: knative-eventing}
data:
  predicates: |+
    [ {"Name": "PodFitsResources"},
      {"Name": "NoMaxResourceCount", "Args": "{\"NumPartitions\": 100}"} ]
  priorities: |+
    [ {"Name": "AvailabilityZonePriority", "Weight": 10, "Args": "{\"MaxSkew\": 2}"},
      {"Name": "LowestOrdinalPriority", "Weight": 2},
      {"Name": "EvenPodSpread", "Weight": 2, "Args": "{\"MaxSkew\": 2}"} ]
"""
DESCHEDULER = r"""
metadata: {name: config-kafka-descheduler}
data:
  predicates: "[]"
  priorities: |+
    [ {"Name": "RemoveWithEvenPodSpreadPriority", "Weight": 10, "Args": "{\"MaxSkew\": 2}"},
      {"Name": "RemoveWithAvailabilityZonePriority", "Weight": 10, "Args": "{\"MaxSkew\": 2}"},
      {"Name": "RemoveWithHighestOrdinalPriority", "Weight": 2} ]
"""
EXAMPLE_ONLY = {
    "metadata": {"name": "config-kafka-descheduler"},
    "data": {"_example": "# priorities: []"},
}
# As eventing-kafka had it in 2021: lists instead of texts, lower case keys, a name that was never a
# plugin.
EARLY = """
metadata: {name: config-scheduler}
data:
  predicates: [{"name": "PodFitsResources"}]
  priorities: [{"name": "EvenPodsSpreadPriority", "weight": 1}]
"""


def knative_profile(name, scheduler, descheduler=None, **options) -> Profile:
    return profile_from(knative_document(name, scheduler, descheduler, **options))


def config_map(**data: str) -> dict[str, object]:
    return {"metadata": {"name": "mine"}, "data": data}


def test_both_config_maps_give_one_profile():
    scheduler, descheduler = yaml.safe_load(SCHEDULER), yaml.safe_load(DESCHEDULER)
    assert knative_profile("kafka", scheduler, descheduler) == Profile(
        name="kafka",
        filters=(PodFitsResources(), NoMaxResourceCount(100)),
        scores=(
            Weighted(AvailabilityZonePriority(), 10),
            Weighted(LowestOrdinalPriority(), 2),
            Weighted(EvenPodSpread(2), 2),
        ),
        deschedulers=(
            Weighted(RemoveWithEvenPodSpreadPriority(), 10),
            Weighted(RemoveWithAvailabilityZonePriority(), 10),
            Weighted(RemoveWithHighestOrdinalPriority(), 2),
        ),
    )


def test_the_document_reads_back_as_the_same_profile():
    scheduler, descheduler = yaml.safe_load(SCHEDULER), yaml.safe_load(DESCHEDULER)
    document = yaml.safe_load(yaml.safe_dump(knative_document("kafka", scheduler, descheduler)))
    assert profile_from(document) == knative_profile("kafka", scheduler, descheduler)


def test_a_config_map_with_nothing_but_its_example_gives_no_deschedulers():
    assert knative_profile("kafka", yaml.safe_load(SCHEDULER), EXAMPLE_ONLY).deschedulers == ()


def test_a_name_that_knative_passes_over_is_an_error():
    with pytest.raises(InvalidObject, match="'EvenPodsSpreadPriority' is not known") as caught:
        knative_profile("early", yaml.safe_load(EARLY))
    assert "ConfigMap config-scheduler: data.priorities[0].Name" in str(caught.value)


def test_an_entry_without_a_weight_is_switched_off_as_in_knative():
    assert (
        knative_profile("x", config_map(priorities='[{"Name": "LowestOrdinalPriority"}]')).scores
        == ()
    )


def test_arguments_that_knative_does_not_read_are_ignored():
    found = knative_profile(
        "x",
        config_map(priorities='[{"Name": "LowestOrdinalPriority", "Weight": 1, "Args": "nope"}]'),
    )
    assert found.scores == (Weighted(LowestOrdinalPriority(), 1),)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"predicates": "nope"}, "data.predicates: is not JSON: 'nope'"),
        ({"predicates": "{}"}, "data.predicates: must hold a JSON list"),
        ({"predicates": "[5]"}, "data.predicates[0]: must be an object, not 5"),
        ({"predicates": "[{}]"}, "data.predicates[0].Name: is required"),
        ({"priority": "[]"}, "data.priority: is not known (known: predicates, priorities)"),
        (
            {"predicates": '[{"Name": "NoMaxResourceCount"}]'},
            "data.predicates[0].Args: of NoMaxResourceCount",
        ),
        (
            {"predicates": '[{"Name": "NoMaxResourceCount", "Args": {"NumPartitions": 1}}]'},
            "must be a text with JSON",
        ),
        (
            {"predicates": r'[{"Name": "EvenPodSpread", "Args": "{\"MaxSkewness\": 1}"}]'},
            "data.predicates[0].Args.MaxSkewness: is not known (known: MaxSkew)",
        ),
        (
            {"priorities": '[{"Name": "LowestOrdinalPriority", "Weight": 101}]'},
            "data.priorities[0].Weight: must be an integer from 0 to 100, not 101",
        ),
        (
            {
                "priorities": '[{"Name": "LowestOrdinalPriority"}, {"Name": '
                '"LowestOrdinalPriority"}]'
            },
            "data.priorities[1].Name: LowestOrdinalPriority is listed twice",
        ),
    ],
)
def test_what_is_wrong_is_named_in_the_config_map(data, message: str):
    with pytest.raises(InvalidObject) as caught:
        knative_profile("x", config_map(**data))
    assert str(caught.value).startswith("ConfigMap mine: ")
    assert message in str(caught.value)


def test_names_that_are_no_plugin_can_be_left_out_as_knative_does():
    early = yaml.safe_load(EARLY)
    found = knative_profile("early", early, ignore_unknown=True)
    assert (found.filters, found.scores) == ((PodFitsResources(),), ())


def test_an_error_behind_a_name_left_out_names_the_right_entry():
    data = {"predicates": r'[{"Name": "Nope"}, {"Name": "EvenPodSpread", "Args": "nope"}]'}
    with pytest.raises(InvalidObject, match=r"data\.predicates\[1\]\.Args: is not JSON"):
        knative_profile("x", config_map(**data), ignore_unknown=True)
