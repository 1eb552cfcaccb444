"""The whole system on one machine: ``vreplica run`` and ``vreplica cluster``.

``local`` puts the parts together over real HTTP, ``story`` is what happens in the demonstration and
what is counted, ``view`` shows it in a terminal.
"""

from extender.lab.demo.commands import DemoOptions, run_cluster, run_demo

__all__ = ["DemoOptions", "run_cluster", "run_demo"]
