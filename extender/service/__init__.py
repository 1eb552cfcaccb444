"""The running service: extender server, binder, committer, and the leader's loops."""
