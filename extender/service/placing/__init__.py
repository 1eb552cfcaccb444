"""Vpods are placed: queue, placer, committer. Knows ``watching``."""
