"""The commands of ``vreplica``. Each module has the options of one command, and a call that runs
it.

``add`` defines the options. Other modules are imported when the command runs, so that ``--help``
and small commands start fast.
"""
