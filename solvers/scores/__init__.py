"""How good an embedding is: retrieval scores."""
