"""Kills what a dead test run left: run as a program, fed process groups on stdin, ends with its
writer.

Theory of operation. pytest may be killed with SIGKILL, and then no ``finally`` runs. The kernel
still closes its file descriptors, so this program, in a session of its own, holds the reading end
of a pipe: ``+PGID`` registers a group, ``-PGID`` forgets it, and the end of the stream, which comes
however the writer died, kills with SIGKILL all that is still registered. It needs nothing but the
standard library, so it works wherever a process group does (PR_SET_PDEATHSIG is Linux only, follows
the thread and not the process, and misses grandchildren).
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Reads registrations until the stream ends, then kills."""
    # Ctrl-C reaches the whole terminal group; the writer decides when it is over.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        pgid = int(line[1:])
        if line.startswith("+"):
            groups.add(pgid)
        else:
            groups.discard(pgid)
    for pgid in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, signal.SIGKILL)


if __name__ == "__main__":
    main()
