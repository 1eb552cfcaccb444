"""The workload: what tenants, operators and failures do to a world, drawn from its seed.

``run`` does one event after the other. ``acts`` defines an event. ``tenants``, ``operators`` and
``fault_acts`` contain most of them.
"""

from extender.lab.simulation.workload.run import Workload

__all__ = ["Workload"]
