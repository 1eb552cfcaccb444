"""The workload: what tenants, operators and bad luck do to a world, drawn from its seed.

``run`` does one event after the other, ``acts`` is what an event may be, ``tenants``, ``operators``
and ``mischief`` hold them.
"""

from extender.lab.simulation.workload.run import Workload

__all__ = ["Workload"]
