"""What a service sees and decides under faults, recorded and played again, comes out as it was
decided.
"""

from collections.abc import Callable

import pytest

from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.world import replica
from extender.service.app import Service
from extender.whatif.recording.entries import Cause
from extender.whatif.recording.player import Changes
from tests.support.notebook import Notebook

pytestmark = [pytest.mark.sim, pytest.mark.timeout(120)]


@pytest.fixture
def recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Trial, int], list[tuple[Notebook, Service]]]:
    """Runs a trial; the notebooks of all its replicas, each begun before the decision of that
    number.
    """

    def run(trial: Trial, after: int) -> list[tuple[Notebook, Service]]:
        found: list[tuple[Notebook, Service]] = []

        class RecordedService(Service):
            def __init__(self, *arguments, **options) -> None:
                super().__init__(*arguments, **options)
                notebook = Notebook(self.caches.state) if not after else None
                decisions = 0

                def decided(*what) -> None:
                    nonlocal decisions, notebook
                    decisions += 1
                    if notebook is not None:
                        notebook.notes.decided(*what)
                    elif decisions == after:
                        notebook = Notebook(self.caches.state)
                    if notebook is not None and decisions == max(after, 1):
                        found.append((notebook, self))

                self.placer.on_decided = decided

        monkeypatch.setattr(replica, "Service", RecordedService)
        outcome = simulate(trial)
        assert outcome.passed, outcome.line()
        return found

    return run


TRIALS = [
    pytest.param(Trial(1001, events=60), 0, id="drawn faults"),
    pytest.param(Trial(4, events=60, plain=True), 0, id="one plain pool"),
    pytest.param(Trial(1003, events=60), 15, id="recorded from the middle on"),
    pytest.param(Trial(1010, events=60, faults=frozenset()), 0, id="no faults"),
]


@pytest.mark.parametrize(("trial", "after"), TRIALS)
def test_every_decision_is_made_again_as_it_was(recorded, trial: Trial, after: int):
    notebooks = recorded(trial, after)
    causes = set()
    for notebook, service in notebooks:
        player, pairs = notebook.played(service.caches.state.profiles)
        causes |= {was.cause for was, _ in pairs}
        assert pairs
        for was, made in pairs:
            assert made == was
        assert player.state.digest() == service.caches.state.digest()
    assert {Cause.PLACE, Cause.GONE} <= causes


@pytest.mark.parametrize(
    "changes", [Changes(profile="spread"), Changes(settings={"slotsPerPod": 3})], ids=str
)
def test_what_is_played_otherwise_decides_otherwise_on_the_same_state(recorded, changes: Changes):
    ((notebook, service), *_) = recorded(Trial(1005, events=60, faults=frozenset()), 0)
    _, pairs = notebook.played(service.caches.state.profiles, changes)
    assert any(made is None or made.outcome != was.outcome for was, made in pairs)
