"""``VReplicaSchedulerConfiguration``: what may be said (``model``), how it is read, shown,
published and changed at work.

The dataclasses of ``model`` are the only list of settings: the reader, ``vreplica config view``,
the JSON schema and the table in docs/configuration.md are all made from them.
"""
