"""The HTTP face, for kubectl and any other client."""
