"""``Notebook``: a recording of one state in memory, as the lines of a file, and what becomes of it
when it is played.
"""

import orjson

from extender.engine.state.cluster_state import ClusterState
from extender.whatif.recording.entries import Decided, Entry, Header, Synced
from extender.whatif.recording.entry_writer import EntryWriter, MakeEntry, snapshot_of
from extender.whatif.recording.lines import line_from, line_to_json
from extender.whatif.recording.player import NO_CHANGES, Changes, Player


class Notebook:
    """Begins with a snapshot of ``state`` as it is, and goes on with its changes."""

    def __init__(self, state: ClusterState) -> None:
        self.lines: list[bytes] = []
        self.notes = EntryWriter(self._keep)
        self._seq = 0
        self._write(Header("replica", 0.0))
        for what in snapshot_of(state):
            self._write(Entry(0.0, 0, what))
        self._write(Synced(0))
        state.observed_by(self.notes)

    def _keep(self, make: MakeEntry) -> None:
        self._seq += 1
        entry = make(float(self._seq), self._seq)
        if entry is not None:
            self._write(entry)

    def _write(self, line) -> None:
        self.lines.append(orjson.dumps(line_to_json(line)))

    def entries(self) -> list[Entry]:
        lines = [
            line_from(orjson.loads(line), f"line {number}")
            for number, line in enumerate(self.lines, 1)
        ]
        return [line for line in lines if isinstance(line, Entry)]

    def played(
        self, profiles, changes: Changes = NO_CHANGES
    ) -> tuple[Player, list[tuple[Decided, Decided | None]]]:
        """The player at its end, and each recorded decision with the one that is made now."""
        player = Player(profiles, changes)
        played = [player.play(entry.content) for entry in self.entries()]
        return player, [pair for pair in played if pair is not None]
