"""The running service: the extender's server, the binder, the committer and the leader's loops."""
