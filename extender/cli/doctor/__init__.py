"""``vreplica doctor``: whether this cluster is all right, and what is to be done where it is not.

``fetch`` reads what the checks need into ``Facts``, bounded, and keeps apart what is not there from
what may not be read; ``checks`` are pure functions of those facts; ``examine`` runs them;
``report`` prints. Nothing is ever written.
"""
