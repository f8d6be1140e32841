"""One module per command: its parser beside its function. They print, and decide nothing."""
