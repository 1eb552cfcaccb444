"""``vreplica record`` and ``vreplica replay``: record a replica or a cluster into files, and make a
report from files.

``extender.whatif.recording`` has the format and plays recordings.
"""
