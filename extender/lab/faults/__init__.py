"""Injected faults of networks, API servers and machines, decided by seeded dice.

``FaultyApi`` stands between one process and the API server, ``FaultyTransport`` between
kube-scheduler and an extender::

    request --delay--> refused (409, 422, 429, 500, 503)  nothing happened
                       reset on its way                   nothing happened, raises OutcomeUnknown
                       given up by the caller             it happens later, raises OutcomeUnknown
                       served --> answer lost             it happened,      raises OutcomeUnknown
                                  answer --delay-->       it happened, and the caller knows
    list    --> from an old cache
    watch   --lag--> events late, doubled, cut off, ended by 410, held back while bookmarks come,
                     or silence

``rates`` lists every kind with its unit. Rates may be replaced at any time. ``CALM`` ends all
faults but keeps a small delay, so that actions still overlap.

A *crash* is a SIGKILL: from that moment every call, even one under way, raises ``Crashed``. It is
no Exception, so the code under test cannot handle it as an answer. Clean-up code still runs, but
cannot reach the API server. A write that was under way has happened, has not, or happens later,
depending on where it was.
"""

from extender.lab.faults.api import ACTOR, Crashed, FaultyApi, OldLists
from extender.lab.faults.dice import Faults
from extender.lab.faults.rates import CALM, KINDS, FaultKind, FaultRates, named
from extender.lab.faults.transport import Answer, FaultyTransport, Hints

__all__ = [
    "ACTOR",
    "CALM",
    "KINDS",
    "Answer",
    "Crashed",
    "FaultKind",
    "FaultRates",
    "Faults",
    "FaultyApi",
    "FaultyTransport",
    "Hints",
    "OldLists",
    "named",
]
