"""Easier levels: their metrics, what they leave open, and the predictor from one to the next."""

from __future__ import annotations

import array_api_compat.numpy as xp
import numpy as np
import pytest

from solvers.convex.levels import Level, Levels
from solvers.regularizers.spectral import SPECTRAL, Scaled

NAMES = ("csfn", "cvnd", "cldd", "l2", "it")


def level(name: str, sigma: float, mu: float, scale: float = 1.0) -> Level:
    return Level(Scaled(SPECTRAL[name](), scale), sigma, mu)


def spectrum(where: Level) -> np.ndarray:
    """Eigenvalues of G over many scales, inside the domain of the level."""
    steepest = min(where.sigma * where.penalty.dual_limit, 1e-2)
    return np.concatenate([[-0.9 * steepest, -1e-3 * steepest, 0.0], 10.0 ** np.arange(-12, 2)])


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e6])
@pytest.mark.parametrize("mu", [1e-9, 1e-4, 1e-1])
@pytest.mark.parametrize("name", NAMES)
def test_a_barrier_has_its_metric_at_every_scale(name: str, mu: float, scale: float) -> None:
    """psi'(x) = -g, to rounding of the terms."""
    where = level(name, 1e-3, mu, scale)
    g = spectrum(where)
    x = where.metric(g, xp=xp)
    bend = where.sigma * where.penalty.slope(x, xp=xp)
    assert np.all(x > 0)
    assert np.all(np.diff(x) <= 1e-9 * x[:-1])
    np.testing.assert_array_less(np.abs(bend - mu / x + g), 1e-9 * (np.abs(bend) + mu / x + np.abs(g)))


@pytest.mark.parametrize("name", NAMES)
def test_a_barrier_leaves_at_most_mu_of_a_gap_for_each_eigenvalue(name: str) -> None:
    final, where = level(name, 1e-2, 0.0), level(name, 1e-2, 1e-4)
    g = spectrum(where)
    x, best = where.metric(g, xp=xp), final.metric(g, xp=xp)

    def cost(at: np.ndarray) -> np.ndarray:
        return final.sigma * final.penalty.value(at, xp=xp) + g * at

    gap = cost(x) - cost(best)
    assert np.all(gap >= -1e-12)
    assert np.all(gap <= 1e-4 * (1 + 1e-6))


@pytest.mark.parametrize("name", NAMES)
def test_the_conjugate_falls_by_the_metric(name: str) -> None:
    """Its derivative by g, against central differences."""
    where = level(name, 1e-2, 1e-3)
    g = np.array([-2e-3, 0.0, 1e-2, 0.5, 3.0])
    x = where.metric(g, xp=xp)
    for k in range(g.size):
        ahead, behind = g.copy(), g.copy()
        step = 1e-5 * (abs(g[k]) + 1e-3)
        ahead[k] += step
        behind[k] -= step
        slope = (where.conjugate(ahead, xp=xp) - where.conjugate(behind, xp=xp)) / (2 * step)
        assert slope == pytest.approx(-x[k], rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_predictor_is_right_to_first_order(name: str) -> None:
    """Halving the way to a lower level quarters the error."""
    here = level(name, 2e-2, 1e-3)
    g = np.array([-1e-2, 0.0, 1e-2, 0.5, 3.0])
    x = here.metric(g, xp=xp)

    def error(share: float) -> np.ndarray:
        lower = level(name, 2e-2 * (1 - share), 1e-3 * (1 - share))
        return np.abs(here.towards(lower, g, x, xp=xp)[2] - lower.metric(g, xp=xp))

    np.testing.assert_array_less(error(0.01), 0.3 * error(0.02) + 1e-12 * x)


def test_a_step_aims_lower_the_nearer_the_weights_are() -> None:
    levels = Levels(Scaled(SPECTRAL["csfn"](), 1.0), 1e-3, 1e-9, 1e-2)
    here = level("csfn", 1e-3, 1e-4)
    targets = [levels.below(here, gap, 1e-2).mu for gap in (0.0, 1e-3, 2e-3, 1e-1)]
    assert targets[0] == pytest.approx(1e-5)
    assert targets == sorted(targets)
    assert targets[-1] == here.mu
    assert levels.below(level("csfn", 1e-3, 2e-9), 0.0, 1e-7) == levels.final
