"""``VReplicaSchedulerConfiguration``: its settings (``model``), and how its file is read, shown,
described by a JSON schema and reloaded.

The dataclasses of ``model`` are the only list of settings. The reader, ``vreplica config view``,
the JSON schema and the table in docs/configuration.md are all made from them.
"""
