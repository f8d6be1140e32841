"""The other methods of the paper's tables."""
