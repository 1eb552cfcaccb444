"""The whole system on one machine: ``vreplica run`` and ``vreplica cluster``.

``local`` connects the parts over real HTTP. ``story`` has the steps of the demonstration and what
they count. ``view`` shows them in a terminal.
"""

from extender.lab.demo.commands import DemoOptions, run_cluster, run_demo

__all__ = ["DemoOptions", "run_cluster", "run_demo"]
