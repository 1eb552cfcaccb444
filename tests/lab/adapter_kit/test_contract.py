"""What an adapter may do and say, given what it was told."""

import json

import pytest

from extender.lab.adapter_kit.contract import REVOKED_GRACE_S, Contract
from extender.lab.adapter_kit.worklog import Piece
from extender.model.assignment import AssignedShare, Assignment, ShareState

ORDERS = "team-a/orders"
UID = "u-1"


class Told:
    """A contract, with the short forms of what happens."""

    def __init__(self) -> None:
        self.contract = Contract(UID)
        self.generation = 40
        self.tell()

    def tell(self, state: ShareState | None = None, epoch: int = 7, indexes: str = "") -> None:
        self.generation += 1
        share = AssignedShare(2, 1, 8, epoch, state or ShareState.SERVE, indexes=indexes)
        shares = {} if state is None else {ORDERS: share}
        self.contract.tell(Assignment(self.generation, "adapters/kit-0", UID, shares))

    def hear(self, generation: int | None = None, uid: str = UID, **lists: list[str]) -> int:
        said = {"uid": uid, "generation": generation or self.generation, **lists}
        return self.contract.hear(json.dumps(said).encode(), now=10.0).status

    def works(self, epoch: int = 7, now: float = 10.0, index: int | None = None) -> list[str]:
        """The violations after a piece of work."""
        self.contract.work(Piece(ORDERS, epoch, index), now)
        return self.contract.violations


@pytest.fixture
def told() -> Told:
    return Told()


def test_work_is_right_from_serve_on_until_it_is_said_that_it_has_been_let_go(told):
    told.tell(ShareState.SERVE)
    assert told.works() == []
    assert told.hear(serving=[ORDERS]) == 200
    assert told.works() == []
    told.tell(ShareState.DRAIN)
    assert told.hear(draining=[ORDERS]) == 200
    assert told.works() == []
    assert told.hear(drained=[ORDERS]) == 200
    assert "said that it is drained" in told.works()[0]


def test_work_is_wrong_on_what_is_prepared(told):
    told.tell(ShareState.PREPARE)
    assert "told to prepare" in told.works()[0]


def test_an_adapter_that_does_not_know_the_newest_yet_works_by_the_one_before(told):
    told.tell(ShareState.SERVE)
    told.hear(serving=[ORDERS])
    told.tell()
    assert told.works() == []
    assert told.hear() == 200
    assert told.works(now=10.0 + REVOKED_GRACE_S) == []
    assert "not assigned" in told.works(now=10.1 + REVOKED_GRACE_S)[0]


def test_the_old_epoch_is_wrong_once_the_new_one_is_served(told):
    told.tell(ShareState.SERVE)
    assert told.works(epoch=7) == []
    told.tell(ShareState.SERVE, epoch=8)
    told.hear(serving=[ORDERS], busy=[ORDERS])
    assert told.works(epoch=7) == []
    assert told.works(epoch=8) == []
    told.hear(serving=[ORDERS])
    assert "epoch 7" in told.works(epoch=7)[0]


def test_after_sigterm_what_is_told_to_serve_may_be_drained_and_then_is(told):
    told.tell(ShareState.SERVE)
    assert told.hear(drained=[ORDERS]) == 200
    assert "said that it is drained" in told.works()[0]


def test_an_index_that_goes_may_be_worked_on_until_the_adapter_says_that_it_is_done(told):
    told.tell(ShareState.SERVE, indexes="0,5")
    told.hear(serving=[ORDERS])
    assert told.works(index=5) == []
    told.tell(ShareState.SERVE, indexes="0-1")
    told.hear(serving=[ORDERS], busy=[ORDERS])
    assert told.works(index=5) == []
    assert told.works(index=1) == []
    told.hear(serving=[ORDERS])
    assert "index 5 of team-a/orders with epoch 7" in told.works(index=5)[0]


@pytest.mark.parametrize("index", [-1, 1, 9_999_999_999])
def test_an_index_that_was_never_told_is_wrong_while_the_share_changes_too(told, index):
    told.tell(ShareState.SERVE, indexes="0,5")
    told.hear(serving=[ORDERS], busy=[ORDERS])
    assert told.works(index=0) == []
    assert f"index {index} of" in told.works(index=index)[0]


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        pytest.param(403, "UID", {"uid": "u-2"}, id="another pod's UID"),
        pytest.param(409, "not told", {"generation": 99}, id="a generation of the future"),
        pytest.param(422, "not assigned", {"serving": ["a/b"]}, id="a share of another pod"),
        pytest.param(400, "malformed", {"serving": [7]}, id="no list of shares"),
        pytest.param(200, "prepare only", {"serving": [ORDERS]}, id="served when told Prepare"),
    ],
)
def test_what_is_wrong_to_say(told, status, words, said):
    told.tell(ShareState.PREPARE)
    assert told.hear(**said) == status
    assert words in told.contract.violations[0]


def test_an_acknowledgement_that_is_out_of_date_is_known_until_another_comes(told):
    told.tell(ShareState.SERVE)
    assert told.hear(generation=told.generation - 1) == 409
    assert told.contract.outdated == told.generation - 1
    assert told.hear(serving=[ORDERS]) == 200
    assert told.contract.outdated is None


def test_an_older_generation_is_answered_409_and_is_wrong_only_after_a_newer_one(told):
    told.tell(ShareState.SERVE)
    assert told.hear(generation=41) == 409
    assert told.contract.violations == []
    assert told.hear(serving=[ORDERS]) == 200
    assert told.hear(generation=41) == 409
    assert "41 after 42" in told.contract.violations[0]
