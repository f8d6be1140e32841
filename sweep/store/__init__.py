"""What is kept: the home, its ledger, artifacts, results, MLflow."""
