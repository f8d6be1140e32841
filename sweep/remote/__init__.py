"""Sweeps on clusters: jobs, what travels there and back, the health of nodes."""
