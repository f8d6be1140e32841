"""Regularizers, grouped by what they look at: eigenvalues of M, entries of M, rows of A."""
