"""``vreplica doctor``: check whether a cluster is healthy, and say what to do if it is not.

``fetch`` reads the ``Facts`` that the checks need, within limits. It distinguishes objects that do
not exist from objects that the user may not read. ``checks`` are pure functions of these facts,
``examine`` runs them, and ``report`` prints the result. Nothing is written.
"""
