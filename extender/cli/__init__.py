"""The command line: ``main`` has the parser, ``commands`` a module for each command."""
