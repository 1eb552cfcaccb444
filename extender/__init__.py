"""vreplica-scheduler places tenants' vreplicas on adapter pods, and adapter pods on nodes.

``extender.engine`` makes decisions, without I/O. ``extender.kube`` talks to the API server.
``extender.service`` runs the decisions against it. ``extender.lab`` is a whole cluster in one
process, for tests and ``make run``.
"""

from extender.python_version import refuse_old_python

refuse_old_python()

__version__ = "0.1.0"
