"""The HTTP server and its answers. Imports every other folder of the service."""
