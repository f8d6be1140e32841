"""How far a sweep is: one live line on a terminal or in a notebook, plain lines now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from sweep.engine.driver import Running, Tally

_LIVE_SECONDS = 0.25
# Plain lines become rarer: so many seconds apart, up to so many seconds after the start.
_PLAIN = ((5.0, 60.0), (30.0, 600.0), (120.0, 3600.0), (600.0, float("inf")))


class Progress:
    """Writes to stderr only: stdout is for data."""

    def __init__(self, sweep: str, stream: TextIO | None = None, *, live: bool | None = None) -> None:
        self.sweep = sweep
        self._stream = stream or sys.stderr
        self._live = (self._stream.isatty() or _in_notebook()) if live is None else live
        self._start: float | None = None
        self._shown = -1e9
        self._width = 0

    def note(self, message: str) -> None:
        """A line of its own, above the live one."""
        self._clear()
        self._stream.write(f"{self.sweep}: {message}\n")
        self._stream.flush()

    def update(
        self, tally: Tally, running: list[Running], seconds_left: Callable[[], float | None]
    ) -> dict[str, Any] | None:
        """Show the state if it is time to, and return it; None if nothing was shown."""
        now = time.monotonic()
        if self._start is None:
            self._start = now
        if now - self._shown < self._interval(now - self._start):
            return None
        self._shown = now
        state = self.state(tally, running, seconds_left())
        line = self._line(state)
        if self._live:
            self._draw(line)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()
        return state

    def finish(self, tally: Tally) -> None:
        """Clear the live line and say how it ended."""
        self._clear()
        elapsed = duration(time.monotonic() - self._start) if self._start is not None else "0 s"
        computed = tally.done - tally.cached
        failures = f", {tally.failed} failed" if tally.failed else ""
        saved = f", {tally.saved} not needed" if tally.saved else ""
        self.note(f"{computed} fits computed, {tally.cached} were there already{failures}{saved}; {elapsed}")

    def state(self, tally: Tally, running: list[Running], seconds_left: float | None) -> dict[str, Any]:
        """Counts, rate and expected end as plain values."""
        elapsed = time.monotonic() - self._start if self._start is not None else 0.0
        fresh = tally.done - tally.cached
        return {
            "done": tally.done,
            "total": tally.total,
            "exact": tally.exact,
            "failed": tally.failed,
            "left": tally.left,
            "rate_per_second": fresh / elapsed if elapsed > 1 else 0.0,  # the first second says nothing yet
            "seconds_left": seconds_left,
            "running": [each.label for each in running],
            "since": [each.since for each in running],
            "updated": time.time(),
        }

    def _interval(self, elapsed: float) -> float:
        return _LIVE_SECONDS if self._live else next(gap for gap, until in _PLAIN if elapsed <= until)

    def _line(self, state: dict[str, Any]) -> str:
        left = state["seconds_left"]
        end = f", ends about {clock_time(time.time() + left)}" if left is not None else ""
        rate = f", {rate_text(state['rate_per_second'])}" if state["rate_per_second"] else ""
        failed = f", {state['failed']} failed" if state["failed"] else ""
        most = "" if state["exact"] else "at most "
        now = ""
        if state["running"]:
            running = duration(max(0.0, time.time() - state["since"][0]))
            more = f" +{len(state['running']) - 1}" if len(state["running"]) > 1 else ""
            now = f" | {state['running'][0]} ({running}){more}"
        return f"{self.sweep}: {state['done']} of {most}{state['total']} fits{failed}{rate}{end}{now}"

    def _draw(self, line: str) -> None:
        line = line[: max(20, shutil.get_terminal_size().columns - 1)]
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def _clear(self) -> None:
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0


class Silence:
    """Shows nothing, and keeps the state now and then."""

    def note(self, message: str) -> None:
        pass

    def update(self, tally: Tally, running: list[Running], seconds_left: Callable[[], float | None]) -> None:
        return None


def duration(seconds: float) -> str:
    """12 s, 3 min 04 s, 2 h 07 min, 3 d 4 h: seconds in the unit people would use."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, of_day = divmod(hours, 24)
    if days:
        return f"{days} d {of_day} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def rate_text(per_second: float) -> str:
    """A rate as people would say it: per second, per minute or per hour."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:.3g}/{unit}"
    return f"{per_second * 86400:.3g}/day"


def clock_time(moment: float) -> str:
    """The time of day, with the date if that is not today."""
    there, here = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M", there)


def _in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel: its output area understands a carriage return."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
