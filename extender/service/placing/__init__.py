"""The queue, the placer and the committer, which place vpods. Imports ``watching``."""
