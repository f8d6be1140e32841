"""How far a sweep is: one live line on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from sweep.engine.driver import Tally

_LIVE_SECONDS = 0.25
_PLAIN_SECONDS = 5.0


class Progress:
    """Writes to stderr only: stdout is for data."""

    def __init__(self, sweep: str, stream: TextIO | None = None) -> None:
        self.sweep = sweep
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._start: float | None = None
        self._shown = -1e9
        self._width = 0

    def note(self, message: str) -> None:
        """A line of its own, above the live one."""
        self._clear()
        self._stream.write(f"{self.sweep}: {message}\n")
        self._stream.flush()

    def update(self, tally: Tally, running: list[str]) -> bool:
        """Show the state if it is time to; returns whether it was shown."""
        now = time.monotonic()
        if self._start is None:
            self._start = now
        if now - self._shown < (_LIVE_SECONDS if self._live else _PLAIN_SECONDS):
            return False
        self._shown = now
        line = self._line(self.state(tally, running))
        if self._live:
            self._draw(line)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()
        return True

    def finish(self, tally: Tally) -> None:
        """Clear the live line and say how it ended."""
        self._clear()
        elapsed = duration(time.monotonic() - self._start) if self._start is not None else "0 s"
        computed = tally.done - tally.cached
        failures = f", {tally.failed} failed" if tally.failed else ""
        self.note(f"{computed} fits computed, {tally.cached} were there already{failures}; {elapsed}")

    def state(self, tally: Tally, running: list[str]) -> dict[str, Any]:
        """Counts, rate and expected end as plain values."""
        elapsed = time.monotonic() - self._start if self._start is not None else 0.0
        fresh = tally.done - tally.cached
        rate = fresh / elapsed if elapsed > 1 else 0.0  # the first second says nothing yet
        left = tally.total - tally.done - tally.failed
        return {
            "done": tally.done,
            "total": tally.total,
            "failed": tally.failed,
            "left": left,
            "rate_per_second": rate,
            "seconds_left": left / rate if rate > 0 else None,
            "running": running,
            "updated": time.time(),
        }

    def _line(self, state: dict[str, Any]) -> str:
        remaining = state["seconds_left"]
        end = time.strftime("%H:%M:%S", time.localtime(time.time() + remaining)) if remaining is not None else "?"
        now = f" | {state['running'][0]}" if state["running"] else ""
        more = f" +{len(state['running']) - 1}" if len(state["running"]) > 1 else ""
        return (
            f"{self.sweep}: {state['done']}/{state['total']} fits, {state['failed']} failed, "
            f"{state['rate_per_second']:.1f}/s, ends about {end}{now}{more}"
        )

    def _draw(self, line: str) -> None:
        import shutil

        line = line[: max(20, shutil.get_terminal_size().columns - 1)]
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def _clear(self) -> None:
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0


def duration(seconds: float) -> str:
    """Seconds in the unit people would use."""
    """12 s, 3 min 04 s, 2 h 07 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
