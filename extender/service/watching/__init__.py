"""What is seen: caches, informers, foreign kinds. Knows no other folder of the service."""
