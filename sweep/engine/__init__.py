"""Runs a plan: the driver, the order of its fits, and where they run."""
