"""Whatever order, loss, crash or damage: nothing committed is lost, changed or computed twice."""

from __future__ import annotations

from tests.sweep.engine.simulation import simulate


def test_schedules_with_crashes_losses_and_damage_end_like_calm_ones() -> None:
    happened = simulate(0, 60)
    # The stories must have met what they are about.
    for what in ("lost worker", "late answer", "answer twice", "altered row", "damaged artifact", "unsound record",
                 "second driver", "MLflow does not answer", "lost MLflow"):  # fmt: skip
        assert happened[what], what
    assert any(what.startswith("crash ") for what in happened)
