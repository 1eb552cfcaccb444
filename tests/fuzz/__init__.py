"""Fuzzing: hostile input to everything that reads bytes from outside. ``python -m tests.fuzz
--help`` says how to run it.
"""
