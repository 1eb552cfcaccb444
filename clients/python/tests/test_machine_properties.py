"""Whatever is told, and however callbacks end: what always holds of the machine."""

from datetime import UTC, datetime, timedelta

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vreplica_adapter.machine import Machine, Reconnect
from vreplica_adapter.progress import Cancel, Limits, Outcome, Problem, Progress, Start, Step
from vreplica_adapter.wire import Acknowledgement, Assignment, ShareDocument, State

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
KEYS = ("a/one", "a/two", "b/three")

documents = st.builds(
    ShareDocument,
    state=st.sampled_from(State),
    vreplicas=st.integers(1, 2),
    epoch=st.integers(0, 2),
    deadline=st.none() | st.integers(-5, 60).map(lambda s: NOON + timedelta(seconds=s)),
)
told_shares = st.dictionaries(st.sampled_from(KEYS), documents)


class AnyLife(RuleBasedStateMachine):
    """One adapter, with a service, callbacks and a clock that do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(limits=Limits(prepare_s=50, serve_s=20, drain_s=50))
        self.now = 0.0
        self.generation = 0
        self.lease_s: float | None = None
        self.running: dict[Progress, Step] = {}
        self.cancelled: set[Progress] = set()
        self.history: dict[Progress, list[tuple[Step, Outcome]]] = {}
        self.heard_at = -1000.0
        """When the last acknowledgement was sent whose answer did not name a newer generation."""
        self.exclusive_since = -1000.0

    def take(self) -> None:
        for action in self.machine.actions():
            match action:
                case Start():
                    progress, step = action.progress, action.step
                    assert progress not in self.running, "one callback of a share at a time"
                    assert not any(
                        other.key == progress.key and other is not progress
                        for other in self.running
                    ), "no two lives of a share at a time"
                    self.running[progress] = step
                    self.check_order(progress, step)
                case Cancel():
                    assert action.progress in self.running
                    assert action.progress not in self.cancelled, "cancelled once"
                    self.cancelled.add(action.progress)
                case Problem():
                    assert action.text
                case Reconnect():
                    pass  # The environment sends assignments as it likes.

    def check_order(self, progress: Progress, step: Step) -> None:
        done = [was for was, outcome in self.history.get(progress, ()) if outcome is Outcome.DONE]
        match step:
            case Step.SERVE:
                assert Step.PREPARE in done, "on_serve follows on_prepare"
                assert progress.told is not None
                assert progress.told.state is State.SERVE
                assert not self.machine.leaving
            case Step.DRAIN:
                called = [was for was, _ in self.history[progress]]
                assert Step.SERVE in called, "only what may have been served is drained"
            case Step.PREPARE:
                assert Step.STOP not in done
            case Step.STOP:
                assert done.count(Step.STOP) == 0, "stopped once"

    @rule(shares=told_shares, news=st.booleans(), step=st.integers(-1, 2))
    def assign(self, shares, news, step):
        self.generation = max(0, self.machine.generation + step)
        before = self.machine.generation
        document = Assignment(self.generation, "uid", shares=shares, lease_s=self.lease_s)
        wall = NOON + timedelta(seconds=self.now)
        leased_before = self.machine.lease_s is not None
        taken = self.machine.assign(document, self.now, wall, news=news)
        if self.machine.lease_s is not None and not leased_before:
            self.exclusive_since = self.now
        assert taken == (self.generation > before)
        assert self.machine.generation == max(before, self.generation)
        self.take()

    @rule(lease_s=st.sampled_from([None, 5.0, 10.0]))
    def change_mode(self, lease_s):
        self.lease_s = lease_s

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        outcome=st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.FAILED]),
        late_s=st.sampled_from([0.0, 0.0, 30.0]),
    )
    def end(self, data, outcome, late_s):
        """``late_s``: for so long nobody has looked what is due."""
        self.now += late_s
        progress = data.draw(st.sampled_from(sorted(self.running, key=lambda one: one.key)))
        if progress in self.cancelled:
            outcome = data.draw(st.sampled_from([Outcome.CANCELLED, Outcome.DONE, outcome]))
        self.finish(progress, outcome)

    def finish(self, progress: Progress, outcome: Outcome) -> None:
        step = self.running.pop(progress)
        self.cancelled.discard(progress)
        self.history.setdefault(progress, []).append((step, outcome))
        self.machine.finished(progress, outcome, "why", self.now)
        self.take()

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 30.0]))
    def wait(self, seconds):
        until = self.now + seconds
        while (due := self.machine.due_at()) <= until:
            self.now = max(self.now, due)
            self.machine.tick(self.now)
            self.take()
            assert self.machine.due_at() > self.now, "it does what is due at once"
        self.now = until

    @rule(ago_s=st.sampled_from([0.0, 0.5, 20.0]), newer=st.booleans())
    def acknowledge(self, ago_s, newer):
        said = self.machine.acknowledgement()
        if said is not None:
            sent_at = max(0.0, self.now - ago_s)
            generation = said.generation + 1 if newer else None
            self.machine.acknowledged(said, sent_at, self.now, generation)
            if not newer:
                self.heard_at = max(self.heard_at, sent_at)
            self.take()

    @precondition(lambda self: self.now > 60)
    @rule(grace_s=st.sampled_from([0.0, 20.0]))
    def leave(self, grace_s):
        self.machine.leave(self.now, self.now + grace_s)
        self.take()

    @invariant()
    def the_acknowledgement_is_true(self):
        said = self.machine.acknowledgement()
        if said is None:
            return
        named = set(self.machine.shares)
        serving, draining, drained = set(said.serving), set(said.draining), set(said.drained)
        assert serving | draining | drained | set(said.busy) <= named
        assert not serving & draining
        assert not drained & (serving | draining | set(said.busy))
        for key, progress in self.machine.progress.items():
            acts = any(self.machine.may_act(progress, epoch, self.now) for epoch in range(3))
            if key in drained:
                assert not acts
                assert self.running.get(progress) in {None, Step.STOP}
            if acts:
                assert self.machine.shares[key].state is not State.PREPARE
                assert progress in self.running or progress in self.history

    @invariant()
    def one_epoch_of_a_share_may_act_and_it_is_the_one_told(self):
        for key, progress in self.machine.progress.items():
            epochs = [e for e in range(3) if self.machine.may_act(progress, e, self.now)]
            assert len(epochs) <= 1
            assert all(self.machine.shares[key].epoch == epoch for epoch in epochs)

    @invariant()
    def nothing_acts_longer_than_a_lease_after_the_last_acknowledgement(self):
        lease_s = self.machine.lease_s
        if lease_s is None or self.now < max(self.heard_at, self.exclusive_since) + lease_s:
            return
        for progress in self.machine.progress.values():
            assert not any(self.machine.may_act(progress, epoch, self.now) for epoch in range(3))

    def teardown(self):
        """Once callbacks end well and the service is heard, all is as it is told."""
        shares = {
            "a/one": ShareDocument(State.SERVE, 1),
            "a/two": ShareDocument(State.PREPARE, 1),
            "b/three": ShareDocument(State.DRAIN, 1),
        }
        self.lease_s = None
        generation = self.machine.generation + 1
        document = Assignment(generation, "uid", shares=shares)
        self.machine.assign(document, self.now, NOON + timedelta(seconds=self.now), news=True)
        self.take()
        for _ in range(100):
            for progress in list(self.running):
                self.finish(progress, Outcome.DONE)
            self.wait(1.0)
        wanted = Acknowledgement(
            "uid", generation, serving=("a/one",), drained=("b/three",), busy=()
        )
        if self.machine.leaving:
            assert self.machine.left
            wanted = Acknowledgement(
                "uid", generation, drained=("a/one", "b/three"), busy=("a/two",)
            )
        assert self.machine.acknowledgement() == wanted


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=80, stateful_step_count=40)
