"""vreplica-scheduler: tenants' vreplicas onto adapter pods, adapter pods onto nodes.

``extender.engine`` decides and touches nothing. ``extender.kube`` speaks to the API server,
``extender.service`` runs the decisions against it, ``extender.lab`` is a whole cluster in one
process for tests and ``make run``.
"""

from extender.python_version import refuse_old_python

refuse_old_python()

__version__ = "0.1.0"
