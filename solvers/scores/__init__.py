"""How good an embedding is: retrieval scores."""

from solvers.scores.table import SCORES, Score

__all__ = ["SCORES", "Score"]
