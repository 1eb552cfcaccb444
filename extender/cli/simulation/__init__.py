"""``vreplica simulate``: runs seeds, one after the other or in parallel."""
