"""One live line on a terminal; elsewhere plain lines that become rarer."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from sweep.engine.driver import Running, Tally
from sweep.engine.progress import Progress, clock_time, duration, rate_text


class Clock:
    """Moves only when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("sweep.engine.progress.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def tally(**changes: Any) -> Tally:
    return Tally(**({"total": 100, "done": 20} | changes))


def test_plain_lines_become_rarer(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress("s", stream, live=False)
    shown: list[float] = []
    for second in range(3 * 3600):
        clock.now = 1000.0 + second
        if progress.update(tally(), [], lambda: None) is not None:
            shown.append(second)
    in_minute = [t for t in shown if t < 60]
    in_hour = [t for t in shown if t < 3600]
    assert 10 <= len(in_minute) <= 13
    assert len(in_hour) <= 60
    assert len(shown) < 80
    assert all(later - earlier >= 595 for earlier, later in zip(shown[-10:], shown[-9:], strict=False))
    assert len(stream.getvalue().splitlines()) == len(shown)
    assert "\r" not in stream.getvalue()


def test_a_live_line_is_drawn_over_itself_and_cut_to_the_terminal(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    progress = Progress("s", stream, live=True)
    running = [Running("digits-imbalanced split 0 pdml-sfn gamma=0.001 rank=100 fold 2", time.time() - 5)] * 3
    for _ in range(4):
        clock.now += 0.3
        progress.update(tally(), running, lambda: 3600.0)
    assert "\n" not in stream.getvalue()
    lines = stream.getvalue().split("\r")[1:]
    assert len(lines) == 4
    assert all(len(line) <= 79 for line in lines)
    progress.note("a word")
    assert stream.getvalue().endswith("\rs: a word\n")


def test_the_line_says_counts_rate_end_and_what_runs(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress("mine", stream, live=False)
    progress.update(tally(done=0), [], lambda: None)
    clock.now += 60
    running = [Running("a fit", time.time() - 90), Running("another", time.time())]
    state = progress.update(tally(done=30, cached=20, failed=2, exact=False), running, lambda: 120.0)
    line = stream.getvalue().splitlines()[-1]
    assert line.startswith("mine: 30 of at most 100 fits, 2 failed, 10/min, ends about ")
    assert line.endswith("| a fit (1 min 30 s) +1")
    assert state is not None
    assert state["rate_per_second"] == pytest.approx(10 / 60)
    assert (state["left"], state["exact"], state["running"]) == (68, False, ["a fit", "another"])


def test_the_end_counts_what_was_computed_there_already_failed_and_saved(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress("s", stream, live=False)
    progress.finish(tally(done=90, cached=30, failed=4, saved=6))
    assert stream.getvalue() == "s: 60 fits computed, 30 were there already, 4 failed, 6 not needed; 0 s\n"


@pytest.mark.parametrize(
    ("per_second", "expected"),
    [(250.0, "250/s"), (1.5, "1.5/s"), (0.5, "30/min"), (1 / 60, "1/min"), (0.01, "36/h"), (1e-4, "8.64/day")],
)
def test_rates_are_said_in_the_unit_that_people_would_use(per_second: float, expected: str) -> None:
    assert rate_text(per_second) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.4, "0 s"), (59, "59 s"), (64, "1 min 04 s"), (3599.6, "1 h 00 min"), (7620, "2 h 07 min"), (273600, "3 d 4 h")],
)
def test_durations_are_said_in_the_unit_that_people_would_use(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_an_end_on_another_day_has_its_date() -> None:
    assert len(clock_time(time.time())) == len("12:34:56")
    assert len(clock_time(time.time() + 3 * 86400)) == len("2026-01-31 12:34")


def test_stdout_is_left_to_data(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("s").note("a word")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "s: a word\n")
