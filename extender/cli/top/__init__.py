"""``vreplica top``: shows pools, pods and waiting vpods of a replica or of a watched cluster."""
