"""``vreplica plan`` and ``vreplica explain``, about files, a live cluster or a running service.

``extender.whatif`` makes the answers. This folder reads the objects and shows the answers. Nothing
is written.
"""
