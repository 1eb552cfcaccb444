"""``vreplica record`` and ``vreplica replay``: from a replica or a cluster into a file, and from
files to a report.

What a recording is, and what it comes to when it is played, is ``extender.whatif.recording``.
"""
