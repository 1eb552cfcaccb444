"""Metrics, spans and log lines of both programs. Imports ``model`` only."""
