"""The rows of Knative's own tests of its scheduler, as data: knative.dev/eventing of June 2026,
``pkg/scheduler``.

- SCHEDULE: ``statefulset/scheduler_test.go``, TestStatefulsetScheduler
- AUTOSCALE, COMPACT: ``statefulset/autoscaler_test.go``, TestAutoscaler and TestCompactor
- STATE: ``state/state_test.go``, TestStateBuilder; without its two rows about nodes, which
  Knative's state no longer looks at

An id says in our words what the row is about. Placements are ordinal -> vreplicas. ``expected`` is
what Knative's test expects. A row in which we differ has the difference, and in fields ``..._here``
what we have instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.conformance.result import Difference

Counts = Mapping[int, int]

NO_PLACEMENT = Difference(
    "a placement of no vreplicas is no placement",
    "Knative has an entry for it in the spread of a vpod",
)
STATE_OF_LEDGERS = Difference(
    "the state is what the ledgers hold",
    "Knative counts what the listed vpods publish, so a status that is wrong or old fills a pod",
)

OF_CALLS = (
    # Not about what a row expects, but about what is called and when: tests/scheduling_api.
    Difference(
        "a listed vpod is scheduled",
        "Knative counts it for the size of the StatefulSet, and places it when its reconciler asks",
    ),
    Difference(
        "the evictor is called as soon as a pod is to be left",
        "Knative calls it for ordinals that are gone; what is on an annotated pod stays published "
        "until something else makes the reconciler schedule",
    ),
    Difference(
        "what two lists lack is released",
        "Knative forgets a reservation if one list lacks the vpod, so a list that lags behind "
        "gives slots away",
    ),
    Difference(
        "an older object is refused",
        "Knative up to 1.16 refuses every version but the listed one; today's version reads none",
    ),
    Difference(
        "an object that is being deleted is released",
        "Knative schedules it as any other, and its reservation ends when the list lacks it",
    ),
    Difference(
        "the AdapterPool has the settings",
        "Knative takes capacity and minReplicas from the controller's configuration",
    ),
)


@dataclass(frozen=True)
class Other:
    """Another vpod, in a namespace of its own."""

    vreplicas: int
    placements: Counts
    namespace: str = "source-namespace-a"
    name: str = "source-name"


@dataclass(frozen=True)
class ScheduleRow:
    """One ``Schedule`` of a vpod."""

    id: str
    vreplicas: int
    replicas: int
    expected: Counts
    left: int = 0
    placements: Counts = field(default_factory=dict)
    reserved: Counts = field(default_factory=dict)
    """Of the vpod; of the others it is what they publish."""
    others: tuple[Other, ...] = ()
    pods_bound: int | None = None
    """None: all."""
    capacity: int = 10
    min_replicas: int = 0


def _small_ones(*letters: str) -> tuple[Other, ...]:
    return tuple(Other(1, {0: 1}, f"source-namespace-{letter}") for letter in letters)


SCHEDULE = (
    ScheduleRow("no pods: all waits", vreplicas=1, replicas=0, expected={}, left=1),
    ScheduleRow("15 onto two empty pods", vreplicas=15, replicas=2, expected={0: 8, 1: 7}),
    ScheduleRow(
        "15 are placed unevenly already: nothing moves",
        vreplicas=15,
        replicas=2,
        placements={0: 10, 1: 5},
        expected={0: 10, 1: 5},
    ),
    ScheduleRow(
        "growing from 10 to 20",
        vreplicas=20,
        replicas=2,
        placements={0: 5, 1: 5},
        expected={0: 10, 1: 10},
    ),
    ScheduleRow(
        "shrinking from 20 to 15",
        vreplicas=15,
        replicas=2,
        placements={0: 10, 1: 10},
        expected={0: 10, 1: 5},
    ),
    ScheduleRow(
        "a reservation that is not published yet",
        vreplicas=3,
        replicas=1,
        reserved={0: 3},
        expected={0: 3},
    ),
    ScheduleRow(
        "the only pod is full of another vpod",
        vreplicas=3,
        replicas=1,
        placements={0: 1},
        others=(Other(10, {0: 10}),),
        expected={},
        left=3,
    ),
    ScheduleRow(
        "the only pod is overcommitted by others",
        vreplicas=3,
        replicas=1,
        placements={0: 1},
        others=(Other(5, {0: 5}, "source-namespace-b"), Other(10, {0: 10})),
        expected={},
        left=3,
    ),
    ScheduleRow(
        "the only pod has room for one",
        vreplicas=3,
        replicas=1,
        others=(Other(9, {0: 9}),),
        expected={0: 1},
        left=2,
    ),
    ScheduleRow(
        "more is reserved than wanted",
        vreplicas=2,
        replicas=4,
        reserved={3: 3},
        others=(Other(10, {0: 10}),),
        expected={3: 2},
    ),
    ScheduleRow(
        "one more, onto the pod without any",
        vreplicas=3,
        replicas=4,
        placements={1: 1, 3: 1},
        reserved={1: 1, 3: 1},
        others=(Other(10, {0: 10}),),
        expected={1: 1, 2: 1, 3: 1},
    ),
    ScheduleRow(
        "two more, the second one onto the lowest of its own",
        vreplicas=4,
        replicas=4,
        placements={1: 1, 3: 1},
        reserved={1: 1, 3: 1},
        others=(Other(10, {0: 10}),),
        expected={1: 2, 2: 1, 3: 1},
    ),
    ScheduleRow(
        "much more, beside many small ones",
        vreplicas=32,
        replicas=2,
        placements={0: 1},
        reserved={0: 1},
        others=_small_ones(*"abcdefg"),
        capacity=20,
        expected={0: 13, 1: 19},
    ),
    ScheduleRow(
        "more is reserved than published",
        vreplicas=32,
        replicas=2,
        placements={0: 1},
        reserved={0: 7},
        others=(Other(7, {0: 7}),),
        capacity=20,
        expected={0: 13, 1: 19},
    ),
    ScheduleRow(
        "the reservation overcommits the pod by all that it has",
        vreplicas=32,
        replicas=1,
        reserved={0: 10},
        others=(Other(18, {0: 18}), Other(2, {0: 2}, "source-namespace-b")),
        capacity=20,
        expected={},
        left=32,
    ),
    ScheduleRow(
        "one pod has room for two, the other one takes no work",
        vreplicas=20,
        replicas=2,
        pods_bound=1,
        others=(Other(18, {0: 18}),),
        capacity=20,
        expected={0: 2},
        left=18,
    ),
    ScheduleRow(
        "minReplicas 3: one on each of three pods",
        vreplicas=1,
        replicas=3,
        min_replicas=3,
        expected={0: 1, 1: 1, 2: 1},
    ),
    ScheduleRow(
        "minReplicas 3: one on the only pod",
        vreplicas=1,
        replicas=1,
        min_replicas=3,
        expected={0: 1},
    ),
    ScheduleRow(
        "minReplicas 3: spread already",
        vreplicas=1,
        replicas=3,
        min_replicas=3,
        placements={0: 1, 1: 1, 2: 1},
        expected={0: 1, 1: 1, 2: 1},
    ),
    ScheduleRow(
        "minReplicas 1 after 3: the highest ordinals are left",
        vreplicas=1,
        replicas=3,
        min_replicas=1,
        placements={0: 1, 1: 1, 2: 1},
        expected={0: 1},
    ),
)


@dataclass(frozen=True)
class AutoscaleRow:
    """One pass of the autoscaler. ``scale_down``: whether it may remove pods."""

    id: str
    replicas: int
    expected: int
    """Pods that are asked for."""
    vpods: tuple[Other, ...] = ()
    scale_down: bool = False


def _listed(*vpods: tuple[int, Counts]) -> tuple[Other, ...]:
    return tuple(
        Other(vreplicas, counts, "test-ns", f"vpod-{number}")
        for number, (vreplicas, counts) in enumerate(vpods, 1)
    )


AUTOSCALE = (
    AutoscaleRow("nothing is wanted, nothing is there", 0, 0, _listed((0, {}))),
    AutoscaleRow("nothing is wanted", 3, 0, _listed((0, {})), scale_down=True),
    AutoscaleRow("nothing is listed", 3, 0, scale_down=True),
    AutoscaleRow("five are pending: one pod is enough", 3, 1, _listed((5, {})), scale_down=True),
    AutoscaleRow("five are pending, and no pod may go", 3, 3, _listed((5, {}))),
    AutoscaleRow("all are placed", 2, 2, _listed((12, {0: 5, 1: 7}))),
    AutoscaleRow("13 are pending, two over the pods' capacity", 2, 3, _listed((22, {0: 2, 1: 7}))),
    AutoscaleRow("nine are pending, one over the capacity", 2, 3, _listed((21, {0: 5, 1: 7}))),
    AutoscaleRow(
        "two vpods want 41, one over four pods' capacity",
        2,
        5,
        _listed((21, {0: 5, 1: 7}), (20, {0: 5, 1: 7})),
    ),
    AutoscaleRow(
        "nine are pending, and three pods are needed",
        3,
        3,
        _listed((21, {0: 5, 1: 7})),
        scale_down=True,
    ),
    AutoscaleRow(
        "all are on the first two of five pods", 5, 2, _listed((15, {0: 8, 1: 7})), scale_down=True
    ),
    AutoscaleRow("three are pending, and there is room", 2, 2, _listed((18, {0: 8, 1: 7}))),
    AutoscaleRow("eight are pending, and five fit", 2, 3, _listed((23, {0: 8, 1: 7}))),
    AutoscaleRow(
        "spread over five pods, and no pod may go",
        5,
        5,
        _listed((20, {0: 8, 1: 7, 2: 1, 3: 1, 4: 1})),
    ),
)


@dataclass(frozen=True)
class CompactRow:
    """One compaction. ``expected``: vpod name -> placements given to the evictor, in that order."""

    id: str
    replicas: int
    vpods: tuple[Other, ...]
    expected: Mapping[str, Counts]


COMPACT = (
    CompactRow("both pods are there", 2, _listed((10, {0: 8, 1: 2})), {}),
    CompactRow(
        "two vpods share the first pod", 3, _listed((12, {0: 4, 1: 8}), (9, {0: 2, 2: 7})), {}
    ),
    CompactRow(
        "one publishes more than it wants, one less",
        3,
        _listed((6, {0: 4, 1: 7}), (15, {0: 2, 2: 7})),
        {},
    ),
    CompactRow(
        "one pod is left",
        1,
        _listed((6, {0: 3, 1: 7, 2: 6}), (3, {0: 7, 2: 3, 3: 2, 10: 1})),
        {"vpod-1": {2: 6, 1: 7}, "vpod-2": {10: 1, 3: 2, 2: 3}},
    ),
)


@dataclass(frozen=True)
class StateRow:
    """The state that is built from pods and listed vpods."""

    id: str
    replicas: int
    vpods: tuple[Other, ...]
    free_cap: tuple[int, ...]
    schedulable_pods: tuple[int, ...]
    pod_spread: tuple[Counts, ...]
    """In the order of ``vpods``."""
    pending: tuple[int, ...]
    free_capacity: int
    unbound: frozenset[int] = frozenset()
    difference: Difference | None = None
    free_cap_here: tuple[int, ...] = ()
    pod_spread_here: tuple[Counts, ...] = ()


def _each_in_its_own(*vpods: tuple[int, Counts]) -> tuple[Other, ...]:
    return tuple(
        Other(vreplicas, counts, f"vpod-ns-{number}", f"vpod-name-{number}")
        for number, (vreplicas, counts) in enumerate(vpods)
    )


STATE = (
    StateRow("nothing at all", 0, (), (), (), (), (), 0),
    StateRow("one of one", 1, _each_in_its_own((1, {0: 1})), (9,), (0,), ({0: 1},), (0,), 9),
    StateRow(
        "three vpods on three pods",
        3,
        _each_in_its_own((1, {0: 1, 2: 5}), (1, {1: 2}), (1, {1: 3, 0: 1})),
        (8, 5, 5),
        (0, 1, 2),
        ({0: 1, 2: 5}, {1: 2}, {0: 1, 1: 3}),
        (0, 0, 0),
        18,
    ),
    StateRow(
        "a pod that waits for a node is not schedulable, and its slots are taken",
        3,
        _each_in_its_own((1, {0: 1, 2: 5}), (1, {1: 2}), (1, {1: 3, 0: 1})),
        (8, 5, 5),
        (1, 2),
        ({2: 5}, {1: 2}, {1: 3}),
        (0, 0, 0),
        10,
        unbound=frozenset({0}),
        difference=STATE_OF_LEDGERS,
        free_cap_here=(10, 5, 5),
    ),
    StateRow(
        "entries of no vreplicas",
        4,
        _each_in_its_own((1, {0: 1, 2: 5}), (1, {1: 0}), (1, {1: 0, 3: 0})),
        (9, 10, 5, 10),
        (0, 1, 2, 3),
        ({0: 1, 2: 5}, {1: 0}, {1: 0, 3: 0}),
        (0, 1, 1),
        34,
        difference=NO_PLACEMENT,
        pod_spread_here=({0: 1, 2: 5}, {}, {}),
    ),
)
