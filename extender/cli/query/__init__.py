"""The commands that ask: ``vreplica plan`` and ``vreplica explain``, about files, a live cluster,
or a running service.

What they answer is made by ``extender.whatif``; here it is read from somewhere and shown. Nothing
is written.
"""
