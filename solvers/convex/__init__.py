"""MDML: a Mahalanobis matrix from pairs, by convex optimisation."""
