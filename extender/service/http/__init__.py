"""The HTTP server and all that it answers. Knows every other folder of the service."""
