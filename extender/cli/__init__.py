"""The command line. ``main`` has the parser; ``commands`` has one module for each command."""
