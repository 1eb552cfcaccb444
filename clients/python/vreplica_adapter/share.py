"""``Share``: what a callback gets."""

from collections.abc import Callable

from vreplica_adapter.progress import Progress
from vreplica_adapter.wire import ShareDocument, State


class Share:
    """A vpod's vreplicas on this pod, as the newest assignment has them.

    The properties change while a callback runs. Once the share has been taken away, they stay as
    they were, and ``still_mine`` is False for ever: a share that comes back is another object.
    """

    def __init__(
        self,
        progress: Progress,
        may_act: Callable[[Progress, int], bool],
        clock: Callable[[], float],
    ) -> None:
        self._progress, self._clock = progress, clock
        self._may_act = may_act

    def __repr__(self) -> str:
        return (
            f"<Share {self.key}: {self.state}, {self.vreplicas} of {self.of}, epoch {self.epoch}>"
        )

    @property
    def _told(self) -> ShareDocument:
        return self._progress.last_told

    @property
    def key(self) -> str:
        """The vpod's ``namespace/name``."""
        return self._progress.key

    @property
    def namespace(self) -> str:
        """Of the vpod."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Of the vpod."""
        return self.key.partition("/")[2]

    @property
    def state(self) -> State:
        """What to do. ``Drain`` also while the adapter lets go by itself, as after SIGTERM."""
        return State.DRAIN if self._progress.letting_go else self._told.state

    @property
    def vreplicas(self) -> int:
        """Of this vpod, here."""
        return self._told.vreplicas

    @property
    def weight(self) -> int:
        """Slots of one vreplica."""
        return self._told.weight

    @property
    def of(self) -> int:
        """All vreplicas of the vpod; 0 if the service does not say."""
        return self._told.of

    @property
    def indexes(self) -> tuple[int, ...] | None:
        """Which of 0 … of-1 are here. None in a pool whose vreplicas are alike."""
        return self._told.indexes

    @property
    def epoch(self) -> int:
        """For each write to an outside system, which refuses one lower than it has seen."""
        return self._told.epoch

    @property
    def peer(self) -> str:
        """A pod where the vpod of a drained share is published. Empty if there is none."""
        return self._told.peer

    @property
    def left_s(self) -> float:
        """Seconds until a drained share must have been let go: told, or by the end of the grace
        period. Infinite if there is no such time.
        """
        return max(0.0, self._progress.deadline_at - self._clock())

    @property
    def intent(self) -> str:
        """Why a share is drained: a value of ``Intent``, or one that is newer than this library."""
        return self._told.intent

    def still_mine(self, epoch: int) -> bool:
        """Whether work that was begun under ``epoch`` may go on.

        True from the call of ``on_serve`` until ``on_drain`` ends, the deadline passes, the share
        is taken away, its epoch changes, or the lease runs out. It asks the clock each time, so it
        is right after a pause of the process, too. No check covers a pause after it: that is what
        the epoch in a write is for.
        """
        return self._may_act(self._progress, epoch)
