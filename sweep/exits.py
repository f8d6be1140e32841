"""Exit codes of the `sweep` command, known to every floor that may end a process."""

from __future__ import annotations

DONE = 0
FAILED_FITS = 1  # they are listed, the rest is there
USER_ERROR = 2
ENDED_EARLY = 3  # a budget, `sweep stop`, or nothing could run
DEFECT = 70  # ours: sysexits' "internal software error"
INTERRUPTED = 130  # nothing lost
