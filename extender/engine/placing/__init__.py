"""Placing one vpod: what stays, what is trimmed, where more vreplicas go, and why."""
