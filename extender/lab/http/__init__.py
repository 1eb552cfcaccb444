"""The embedded cluster's HTTP server, for kubectl and any other client."""
