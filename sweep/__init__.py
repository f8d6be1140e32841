"""The orchestrator: sweep files, plan, driver, Ray tasks, ledger, MLflow recording, command line."""

__version__ = "0.1.0"
