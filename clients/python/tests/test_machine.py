"""The machine, one situation at a time. Time is a number that the test moves."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from vreplica_adapter.machine import LEASE_PART, Machine, Reconnect
from vreplica_adapter.progress import Cancel, Limits, Outcome, Problem, Progress, Start, Step
from vreplica_adapter.wire import Assignment, ShareDocument, State

ORDERS, CLICKS = "team-a/orders", "team-b/clicks"
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


class Driven:
    """A machine, its clock, and what it wanted."""

    def __init__(self, *, lease_s: float | None = None, limits: Limits | None = None) -> None:
        self.machine = Machine(limits=limits)
        self.lease_s = lease_s
        self.now = 1000.0
        self.generation = 0
        self.running: dict[str, tuple[Progress, Step]] = {}
        self.calls: list[str] = []
        self.cancelled: list[str] = []
        self.problems: list[str] = []
        self.reconnects = 0

    def tell(self, *, news: bool = True, generation: int | None = None, **shares) -> bool:
        """Assign shares, by the vpod's name in team-a."""
        self.generation = self.generation + 1 if generation is None else generation
        told = {f"team-a/{name}": share for name, share in shares.items()}
        assignment = Assignment(self.generation, "uid", shares=told, lease_s=self.lease_s)
        taken = self.machine.assign(assignment, self.now, self.wall, news=news)
        self.take()
        return taken

    @property
    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.now - 1000.0)

    def take(self) -> None:
        for action in self.machine.actions():
            match action:
                case Start():
                    assert action.progress.key not in self.running
                    self.running[action.progress.key] = (action.progress, action.step)
                    self.calls.append(action.step)
                case Cancel():
                    self.cancelled.append(action.progress.key)
                case Problem():
                    self.problems.append(action.text)
                case Reconnect():
                    self.reconnects += 1

    def end(self, outcome: Outcome = Outcome.DONE, why: str = "", key: str = ORDERS) -> None:
        """The callback that runs ends."""
        progress, _ = self.running.pop(key)
        self.machine.finished(progress, outcome, why, self.now)
        self.take()

    def settle(self) -> None:
        while self.running:
            self.end(key=next(iter(self.running)))

    def wait(self, seconds: float) -> None:
        """Time passes, and the machine is asked whenever it wants to be."""
        until = self.now + seconds
        while (due := self.machine.due_at()) <= until:
            assert due > self.now - 1e-9 or due <= self.now
            self.now = max(self.now, due)
            self.machine.tick(self.now)
            self.take()
            assert self.machine.due_at() > self.now, "it does what is due at once"
        self.now = until

    def acknowledge(self, *, sent_s_ago: float = 0.0, generation: int | None = None) -> None:
        said = self.machine.acknowledgement()
        assert said is not None
        self.machine.acknowledged(said, self.now - sent_s_ago, self.now, generation)
        self.take()

    def said(self) -> dict[str, tuple[str, ...]]:
        """The lists that are not empty."""
        said = self.machine.acknowledgement()
        assert said is not None
        names = ("serving", "draining", "drained", "busy")
        return {name: getattr(said, name) for name in names if getattr(said, name)}

    def may_act(self, epoch: int = 0, key: str = ORDERS) -> bool:
        progress = self.machine.progress.get(key)
        return progress is not None and self.machine.may_act(progress, epoch, self.now)


def share(state: State = State.SERVE, vreplicas: int = 1, **fields) -> ShareDocument:
    return ShareDocument(state, vreplicas, **fields)


def drained_until(driven: Driven, seconds: float, **fields) -> ShareDocument:
    return share(State.DRAIN, deadline=driven.wall + timedelta(seconds=seconds), **fields)


@pytest.fixture
def driven() -> Driven:
    return Driven()


@pytest.fixture
def serving() -> Driven:
    driven = Driven()
    driven.tell(orders=share())
    driven.settle()
    return driven


def test_before_the_first_assignment_there_is_nothing_to_say(driven):
    assert driven.machine.acknowledgement() is None
    assert not driven.machine.unsaid()
    assert driven.machine.due_at() == math.inf


def test_a_share_is_prepared_and_then_served_and_said_to_be_served_only_then(driven):
    driven.tell(orders=share())
    assert driven.calls == ["on_prepare"]
    assert driven.said() == {"busy": (ORDERS,)}
    assert not driven.may_act()
    driven.end()
    assert driven.calls == ["on_prepare", "on_serve"]
    assert driven.said() == {"busy": (ORDERS,)}
    assert driven.may_act(), "on_serve may begin to work"
    driven.end()
    assert driven.said() == {"serving": (ORDERS,)}


def test_a_share_that_is_to_be_prepared_is_ready_when_it_is_in_no_list(driven):
    driven.tell(orders=share(State.PREPARE))
    assert driven.said() == {"busy": (ORDERS,)}
    driven.end()
    assert driven.said() == {}
    assert not driven.may_act()
    driven.tell(orders=share())
    assert driven.calls == ["on_prepare", "on_serve"]


def test_a_share_that_is_drained_is_let_go_when_on_drain_ends(serving):
    serving.tell(orders=drained_until(serving, 30))
    assert serving.calls[-1] == "on_drain"
    assert serving.said() == {"draining": (ORDERS,)}
    assert serving.may_act(), "what is under way may be finished"
    serving.end()
    assert serving.said() == {"drained": (ORDERS,)}
    assert not serving.may_act()
    serving.tell()
    assert serving.calls[-1] == "on_stop"
    serving.end()
    assert not serving.machine.progress


def test_a_share_that_is_taken_away_is_stopped_without_being_drained(serving):
    serving.tell()
    assert serving.calls[-1] == "on_stop"
    assert not serving.may_act()
    assert serving.said() == {}, "a share that is not assigned is not named"


def test_a_process_that_has_not_served_what_it_is_to_drain_has_let_go_of_it(driven):
    driven.tell(orders=drained_until(driven, 30))
    assert driven.calls == []
    assert driven.said() == {"drained": (ORDERS,)}
    driven.tell()
    assert driven.calls == []


@pytest.mark.parametrize(
    ("change", "called"),
    [
        pytest.param({"vreplicas": 2}, True, id="more vreplicas"),
        pytest.param({"of": 9}, True, id="the vpod has grown elsewhere"),
        pytest.param({"indexes": (4,)}, True, id="other indexes"),
        pytest.param({"epoch": 1}, True, id="epoch"),
        pytest.param({"weight": 2}, True, id="weight"),
        pytest.param({"peer": "x"}, False, id="peer"),
        pytest.param({"intent": "Scale"}, False, id="intent"),
    ],
)
def test_on_serve_is_called_again_when_what_it_must_know_changes(serving, change, called):
    serving.calls.clear()
    serving.tell(orders=share(**change))
    assert serving.calls == (["on_serve"] if called else [])
    assert ("busy" in serving.said()) == called
    assert serving.said()["serving"] == (ORDERS,), "it is served meanwhile"


def test_work_under_the_epoch_before_ends_at_once(serving):
    serving.tell(orders=share(epoch=1))
    assert not serving.may_act(epoch=0)
    assert serving.may_act(epoch=1)


def test_a_change_while_on_serve_runs_is_served_after_it(driven):
    driven.tell(orders=share())
    driven.end()
    driven.tell(orders=share(vreplicas=2))
    assert driven.calls == ["on_prepare", "on_serve"]
    driven.end()
    assert driven.calls == ["on_prepare", "on_serve", "on_serve"]
    driven.end()
    assert driven.said() == {"serving": (ORDERS,)}


@pytest.mark.parametrize(
    ("calls_ended", "told", "then"),
    [
        pytest.param(0, None, "on_stop", id="on_prepare, taken away"),
        pytest.param(1, None, "on_stop", id="on_serve, taken away"),
        pytest.param(1, State.DRAIN, "on_drain", id="on_serve, drained"),
    ],
)
def test_a_callback_that_leads_nowhere_is_cancelled_and_the_next_waits_for_its_end(
    driven, calls_ended, told, then
):
    driven.tell(orders=share())
    for _ in range(calls_ended):
        driven.end()
    calls = len(driven.calls)
    driven.tell(**({} if told is None else {"orders": share(told)}))
    assert driven.cancelled == [ORDERS]
    driven.wait(1)
    assert len(driven.calls) == calls
    driven.end(Outcome.CANCELLED)
    assert driven.calls[calls:] == [then]
    assert driven.problems == []


def test_a_drain_that_is_taken_back_is_cancelled_and_the_share_is_served_again(serving):
    serving.tell(orders=drained_until(serving, 30))
    serving.tell(orders=share())
    assert serving.cancelled == [ORDERS]
    assert serving.said() == {"busy": (ORDERS,)}
    serving.end(Outcome.CANCELLED)
    assert serving.calls[-1] == "on_serve"
    serving.end()
    assert serving.said() == {"serving": (ORDERS,)}
    serving.wait(60)
    assert serving.said() == {"serving": (ORDERS,)}, "the deadline is taken back, too"


def test_a_share_that_comes_back_while_it_is_stopped_is_served_after_that(serving):
    old = serving.machine.progress[ORDERS]
    serving.tell()
    serving.tell(orders=share())
    assert serving.said() == {"busy": (ORDERS,)}
    serving.settle()
    assert serving.calls == ["on_prepare", "on_serve", "on_stop", "on_prepare", "on_serve"]
    assert not serving.machine.may_act(old, 0, serving.now), "another life"


@pytest.mark.parametrize("generation", [0, 3, 4], ids=["older", "one before", "the same"])
def test_an_assignment_that_is_not_newer_changes_nothing(driven, generation):
    driven.tell(orders=share(), generation=4)
    driven.settle()
    assert not driven.tell(generation=generation)
    assert driven.said() == {"serving": (ORDERS,)}
    assert driven.machine.generation == 4
    assert len(driven.problems) == (generation == 4), "one generation has one content"


@pytest.mark.parametrize("news", [False, True])
def test_an_assignment_of_another_pod_is_refused(serving, news):
    other = Assignment(99, "another uid")
    assert not serving.machine.assign(other, serving.now, serving.wall, news=news)
    serving.take()
    assert serving.said() == {"serving": (ORDERS,)}
    assert "another uid" in serving.problems[0]


def test_what_the_service_sends_replaces_what_a_file_said_of_another_pod(driven):
    """A template that was copied from a pod has that pod's assignment."""
    driven.tell(orders=share(), generation=700, news=False)
    driven.settle()
    own = Assignment(2, "own uid", shares={CLICKS: share()})
    assert driven.machine.assign(own, driven.now, driven.wall, news=True)
    driven.take()
    driven.settle()
    assert driven.machine.generation == 2
    assert driven.calls == ["on_prepare", "on_serve", "on_stop", "on_prepare", "on_serve"]
    assert driven.said() == {"serving": (CLICKS,)}


def test_a_lease_that_is_made_shorter_stops_nothing_before_the_next_acknowledgement():
    """The service goes by the longest lease that it has told."""
    driven = Driven(lease_s=30.0)
    driven.tell(orders=share())
    driven.acknowledge()
    driven.settle()
    driven.acknowledge()
    driven.wait(8)
    driven.lease_s = 5.0
    driven.tell(orders=share())
    assert driven.machine.lease_until == driven.now + LEASE_PART * 5.0
    assert driven.problems == []
    driven.wait(3)
    driven.acknowledge()
    assert driven.machine.lease_until == driven.now + LEASE_PART * 5.0
    driven.wait(5)
    assert driven.calls[-1] == "on_stop"


def test_a_lease_that_is_made_shorter_is_never_longer_than_it_was():
    driven = Driven(lease_s=30.0)
    driven.tell(orders=share())
    driven.acknowledge()
    driven.wait(25)
    before = driven.machine.lease_until
    driven.lease_s = 20.0
    driven.tell(orders=share())
    assert driven.machine.lease_until == before


def test_a_callback_that_fails_is_called_again_with_longer_and_longer_waits(driven):
    driven.tell(orders=share())
    waits = []
    for _ in range(8):
        began = driven.now
        driven.end(Outcome.FAILED, "no database")
        while not driven.running:
            driven.wait(0.5)
        waits.append(driven.now - began)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert driven.said() == {"busy": (ORDERS,)}
    assert "no database" in driven.problems[0]
    driven.end()
    assert driven.calls[-1] == "on_serve"


def test_a_newer_assignment_lets_what_has_failed_be_tried_at_once(driven):
    driven.tell(orders=share())
    driven.end(Outcome.FAILED)
    driven.tell(orders=share(vreplicas=2))
    assert driven.calls == ["on_prepare", "on_prepare"]


def test_a_failure_of_one_share_changes_nothing_for_another(driven):
    driven.tell(orders=share(), clicks=share())
    driven.end(Outcome.FAILED)
    driven.end(key="team-a/clicks")
    driven.end(key="team-a/clicks")
    assert driven.said() == {"serving": ("team-a/clicks",), "busy": (ORDERS,)}


def test_a_callback_that_takes_too_long_is_cancelled_and_counts_as_failed(driven):
    driven.tell(orders=share())
    driven.wait(299)
    assert driven.cancelled == []
    driven.wait(1)
    assert driven.cancelled == [ORDERS]
    assert driven.problems == ["on_prepare took longer than 300 s: it is cancelled"]
    driven.end(Outcome.CANCELLED)
    driven.wait(1)
    assert driven.calls == ["on_prepare", "on_prepare"]


def test_a_callback_that_goes_on_after_its_cancellation_is_told_once_and_blocks_its_share(driven):
    driven.tell(orders=share())
    driven.tell()
    driven.wait(3600)
    told = [text for text in driven.problems if "goes on" in text]
    assert told == ["on_prepare goes on although it was cancelled"]
    assert driven.calls.count("on_stop") == 0
    driven.end(Outcome.DONE)
    assert driven.calls[-1] == "on_stop"


def test_a_drain_without_a_deadline_has_the_librarys_limit(serving):
    serving.tell(orders=share(State.DRAIN))
    serving.wait(301)
    assert serving.cancelled == [ORDERS]
    serving.end(Outcome.CANCELLED)
    assert serving.said() == {"draining": (ORDERS,)}, "it has not let go"


def test_a_share_that_is_not_let_go_by_its_deadline_is_stopped(serving):
    serving.tell(orders=drained_until(serving, 30))
    serving.wait(29.9)
    assert serving.may_act()
    serving.wait(0.2)
    assert not serving.may_act()
    assert serving.cancelled == [ORDERS]
    assert serving.said() == {"draining": (ORDERS,)}
    serving.end(Outcome.CANCELLED)
    assert serving.calls[-1] == "on_stop"
    assert serving.said() == {"draining": (ORDERS,)}
    serving.end()
    assert serving.said() == {"drained": (ORDERS,)}


def test_a_deadline_holds_after_a_pause_in_which_nobody_looked(serving):
    serving.tell(orders=drained_until(serving, 30))
    serving.now += 31
    assert not serving.may_act()


def test_a_generation_that_the_service_names_has_a_moment_to_come_on_the_open_stream(serving):
    for generation in range(5, 9):
        serving.acknowledge(generation=generation)
        serving.wait(0.9)
        serving.tell(orders=share(), generation=generation)
    serving.wait(60)
    assert serving.reconnects == 0
    serving.acknowledge(generation=9)
    serving.wait(0.9)
    assert serving.reconnects == 0
    serving.wait(0.2)
    assert serving.reconnects == 1
    serving.wait(60)
    assert serving.reconnects == 1, "the new stream says what there is"
    serving.acknowledge(generation=9)
    serving.wait(1.1)
    assert serving.reconnects == 2, "the new one is at a replica that is behind, too"


def test_a_drain_that_ends_at_its_deadline_before_anybody_looked_has_let_go(serving):
    serving.tell(orders=drained_until(serving, 30))
    serving.now += 30
    serving.end()
    assert serving.cancelled == serving.problems == []
    assert serving.said() == {"drained": (ORDERS,)}


def test_a_deadline_that_is_moved_is_the_one_that_counts(serving):
    serving.tell(orders=drained_until(serving, 30))
    serving.tell(orders=drained_until(serving, 90))
    serving.wait(60)
    assert serving.may_act()
    serving.wait(31)
    assert not serving.may_act()


def test_a_deadline_that_is_repeated_does_not_move_with_the_time_of_day(serving):
    deadline = serving.wall + timedelta(seconds=30)
    serving.tell(orders=share(State.DRAIN, deadline=deadline))
    serving.wait(20)
    again = Assignment(99, "uid", shares={ORDERS: share(State.DRAIN, deadline=deadline)})
    serving.machine.assign(again, serving.now, serving.wall - timedelta(hours=1), news=True)
    serving.wait(11)
    assert not serving.may_act()


def test_on_stop_that_fails_is_given_up_after_three_calls_and_told(serving):
    serving.tell()
    for _ in range(3):
        serving.end(Outcome.FAILED, "still open")
        serving.wait(10)
    assert serving.calls.count("on_stop") == 3
    assert not serving.machine.progress
    assert "given up" in serving.problems[-1]


def test_a_share_that_is_served_and_told_to_prepare_is_drained_first(serving):
    serving.tell(orders=share(State.PREPARE))
    assert serving.calls[-1] == "on_drain"
    assert not serving.may_act()
    assert serving.said() == {"draining": (ORDERS,), "busy": (ORDERS,)}
    serving.settle()
    assert serving.calls[-2:] == ["on_drain", "on_prepare"]
    assert serving.said() == {}


def test_leaving_drains_what_is_served_then_stops_everything(driven):
    driven.tell(orders=share(), clicks=share(State.PREPARE))
    driven.settle()
    driven.calls.clear()
    driven.machine.leave(driven.now, driven.now + 20)
    driven.take()
    assert driven.calls == ["on_drain"]
    assert driven.said() == {"draining": (ORDERS,), "busy": ("team-a/clicks",)}
    assert not driven.machine.left
    driven.end()
    assert driven.calls == ["on_drain", "on_stop", "on_stop"]
    driven.settle()
    assert driven.machine.left
    assert driven.said() == {"drained": (ORDERS,), "busy": ("team-a/clicks",)}


def test_leaving_stops_what_is_not_let_go_by_the_end_of_the_grace_period(serving):
    serving.machine.leave(serving.now, serving.now + 20)
    serving.take()
    serving.wait(19)
    assert serving.may_act()
    serving.wait(2)
    assert not serving.may_act()
    serving.end(Outcome.CANCELLED)
    serving.end()
    assert serving.machine.left
    assert serving.said() == {"drained": (ORDERS,)}


def test_one_that_leaves_takes_nothing_new(serving):
    serving.machine.leave(serving.now, serving.now + 20)
    serving.take()
    serving.tell(orders=share(), clicks=share())
    assert serving.calls[-1] == "on_drain"
    serving.settle()
    assert serving.machine.left
    assert "serving" not in serving.said()


def test_one_without_shares_leaves_at_once(driven):
    driven.machine.leave(driven.now, driven.now + 20)
    assert driven.machine.left


class TestLease:
    """``handoff.mode: Exclusive``."""

    @pytest.fixture
    def leased(self) -> Driven:
        return Driven(lease_s=10.0)

    @pytest.fixture
    def served(self, leased: Driven) -> Driven:
        leased.tell(orders=share())
        leased.acknowledge()
        leased.settle()
        return leased

    def test_nothing_is_served_before_the_service_has_heard_the_pod(self, leased):
        leased.tell(orders=share())
        leased.settle()
        assert leased.calls == ["on_prepare"]
        leased.acknowledge()
        assert leased.calls == ["on_prepare", "on_serve"]

    def test_a_file_alone_gives_no_lease(self, leased):
        leased.tell(orders=share(), news=False)
        leased.settle()
        leased.acknowledge()
        assert leased.calls == ["on_prepare"]

    def test_a_lease_counts_from_the_sending_and_a_part_of_it_is_kept(self, leased):
        leased.tell(orders=share())
        leased.wait(2)
        leased.acknowledge(sent_s_ago=1.5)
        leased.settle()
        left_s = LEASE_PART * 10.0 - 1.5
        leased.now += left_s - 0.01
        assert leased.may_act()
        leased.now += 0.02
        assert not leased.may_act(), "without a tick: the clock is asked"

    def test_each_acknowledgement_renews_it(self, served):
        for _ in range(10):
            served.wait(8)
            served.acknowledge()
        assert served.may_act()
        assert served.calls == ["on_prepare", "on_serve"]

    def test_one_whose_lease_has_run_out_stops_by_itself(self, served):
        served.wait(9.1)
        assert served.calls[-1] == "on_stop"
        assert served.said() == {"draining": (ORDERS,), "busy": (ORDERS,)}
        assert served.reconnects == 1
        served.settle()
        assert served.calls[-1] == "on_prepare"
        assert served.said() == {"busy": (ORDERS,)}

    def test_a_lost_lease_needs_news_and_an_acknowledgement_after_that(self, served):
        served.wait(9.1)
        served.settle()
        served.acknowledge()
        assert served.calls[-1] == "on_prepare", "no news yet"
        served.wait(1)
        served.tell(orders=share(), generation=1)
        served.acknowledge(sent_s_ago=0.5)
        assert served.calls[-1] == "on_prepare", "sent before the news"
        served.acknowledge()
        assert served.calls[-1] == "on_serve"

    def test_a_late_answer_after_a_pause_revives_nothing(self, served):
        """The process was stopped for a minute between sending and the answer."""
        served.now += 60
        served.acknowledge(sent_s_ago=60)
        assert not served.may_act()
        assert served.calls[-1] == "on_stop"

    def test_a_pause_is_noticed_although_the_answer_is_the_first_event_after_it(self, served):
        served.now += 60
        served.acknowledge(sent_s_ago=0.0)
        assert not served.may_act()

    def test_an_answer_with_a_newer_generation_renews_nothing_and_asks_for_it(self, served):
        served.wait(5)
        served.acknowledge(generation=7)
        served.acknowledge(generation=7)
        served.wait(2)
        assert served.reconnects == 1
        served.wait(2.1)
        assert not served.may_act()

    def test_a_drain_ends_with_the_lease(self, served):
        served.tell(orders=drained_until(served, 300))
        served.wait(9.1)
        assert served.cancelled == [ORDERS]
        served.end(Outcome.CANCELLED)
        served.end()
        assert served.said() == {"drained": (ORDERS,)}

    def test_a_pool_that_becomes_exclusive_goes_over_without_a_gap(self, serving):
        serving.wait(1000)
        serving.lease_s = 10.0
        serving.tell(orders=share())
        assert serving.may_act()
        serving.wait(5)
        serving.acknowledge()
        serving.wait(8)
        assert serving.calls == ["on_prepare", "on_serve"]
        assert serving.may_act()

    def test_a_pool_that_ceases_to_be_exclusive_needs_no_lease(self, served):
        served.lease_s = None
        served.tell(orders=share())
        served.wait(1000)
        assert served.may_act()

    def test_a_lease_of_the_constructor_holds_where_the_assignment_has_none(self):
        driven = Driven()
        driven.machine = Machine(lease_s=10.0)
        driven.tell(orders=share())
        driven.settle()
        assert driven.calls == ["on_prepare"]


def test_ten_thousand_shares_cost_each_event_no_more_than_a_few(monkeypatch):
    """Work is counted, not timed: a share's step looks at no other share."""
    driven = Driven()
    shares = {f"team-a/vpod-{number}": share() for number in range(10_000)}
    driven.machine.assign(Assignment(1, "uid", shares=shares), driven.now, driven.wall, news=True)
    driven.take()
    steps: list[str] = []
    step = Machine._step

    def counted(machine: Machine, progress: Progress, now: float) -> None:
        steps.append(progress.key)
        step(machine, progress, now)

    monkeypatch.setattr(Machine, "_step", counted)
    driven.end(key="team-a/vpod-7")
    assert steps == ["team-a/vpod-7"]
    assert len(driven.machine._due) <= 10_001
