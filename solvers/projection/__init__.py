"""PDML: a projection learned from pairs, best of several restarts."""
