"""The first run on a GPU, in ten minutes: `make gpu-acceptance`, or `python -m tests.acceptance cupy`."""
