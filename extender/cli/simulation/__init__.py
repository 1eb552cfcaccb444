"""``vreplica simulate``: seeds run one after the other or side by side."""
