"""Sampled queries: unbiased, with an honest standard error, and rare classes keep theirs."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from solvers.scores import SCORES
from solvers.scores.retrieval import query_scores, retrieval_scores
from solvers.scores.sampling import sample_queries

SEEDS = 120


def long_tailed(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """1,300 points of 40 classes from 2 to 600 examples, small classes retrieved worse."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(2, (600 / np.arange(1, 41) ** 1.5).astype(int))
    y = np.repeat(np.arange(40), sizes)
    centres = rng.normal(size=(40, 5)) * np.linspace(2.5, 0.3, 40)[:, None]
    return centres[y] + rng.normal(size=(y.size, 5)), y


@pytest.fixture(scope="module", name="draws")
def _draws() -> tuple[dict[str, float], list[dict[str, float]]]:
    """Exact scores, and those of many samples."""
    Z, y = long_tailed()
    frequent = [0, 1, 2]
    exact = retrieval_scores(Z, y, frequent, max_queries=None)
    return exact, [retrieval_scores(Z, y, frequent, max_queries=500, seed=seed) for seed in range(SEEDS)]


@pytest.mark.parametrize("name", SCORES)
def test_samples_lie_around_the_exact_score_as_their_standard_errors_say(name, draws):
    exact, samples = draws
    errors = np.array([sample[f"{name}_se"] for sample in samples])
    deviations = np.array([sample[name] for sample in samples]) - exact[name]
    assert exact[f"{name}_se"] == 0
    assert np.all(errors > 0)
    assert np.mean(np.abs(deviations) < 4 * errors) >= 0.98
    typical = np.sqrt(np.mean(errors**2))
    assert np.abs(deviations).max() < 4 * typical
    assert abs(deviations.mean()) < 4 * typical / np.sqrt(SEEDS)
    # It may be too wide where nearly all queries succeed (recall), but not too narrow.
    assert 0.5 * typical < deviations.std() < 1.25 * typical


def test_a_sample_has_the_size_asked_for_and_says_so(draws):
    exact, samples = draws
    assert {sample["n_queries"] for sample in samples} == {500}
    assert exact["n_queries"] == exact["n_rows"] - exact["n_skipped"] > 500


def test_small_classes_are_asked_completely():
    sizes = np.array([2, 1000, 3, 400, 5])
    sample = sample_queries(sizes, 300, 0)
    asked = np.bincount(np.repeat(np.arange(5), sizes)[sample.rows], minlength=5)
    assert asked[[0, 2, 4]].tolist() == [2, 3, 5]
    assert asked.sum() == 300
    assert asked[1] > asked[3] > 400 / 1410 * 300
    assert sample.weights.sum() == pytest.approx(sizes.sum())


@pytest.mark.parametrize(
    ("n_classes", "max_queries"), [(1, 2), (1, 3), (4, 2), (4, 3), (4, 7), *((700, k) for k in (2, 3, 7, 50, 500))]
)
def test_every_row_is_as_likely_as_its_weight_says(max_queries, n_classes):
    """Also with more classes than queries, where classes of one size share a stratum."""
    sizes = np.random.default_rng(0).integers(2, 9, size=n_classes)
    n, n_draws = int(sizes.sum()), 400
    represented = np.zeros(n)
    for seed in range(n_draws):
        sample = sample_queries(sizes, max_queries, seed)
        assert sample.rows.size == max_queries
        assert np.all(np.diff(sample.rows) > 0)
        assert np.bincount(sample.stratum).min() >= min(2, max_queries)
        represented[sample.rows] += sample.weights
    assert represented.sum() == pytest.approx(n * n_draws)
    spread = sample_queries(sizes, max_queries, 0).weights.max() / n_draws
    np.testing.assert_allclose(represented / n_draws, 1.0, atol=6 * np.sqrt(spread) + 1e-9)


def test_equal_seeds_give_equal_scores_and_others_differ():
    Z, y = long_tailed()
    one, again, other = (retrieval_scores(Z, y, max_queries=100, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one["auc_all"] != other["auc_all"]


def test_a_sampled_query_scores_as_it_does_among_all():
    Z, y = long_tailed()
    everything, some = query_scores(Z, y), query_scores(Z, y, max_queries=200)
    place = np.searchsorted(np.sort(everything.rows), some.rows)
    order = np.argsort(everything.rows)
    for name, values in some.values.items():
        np.testing.assert_allclose(values, everything.values[name][order][place], rtol=0, atol=1e-12)


def test_every_backend_asks_the_same_queries():
    Z, y = long_tailed()
    there = array_api_strict.asarray(Z, device=array_api_strict.Device("device1"))
    assert retrieval_scores(there, y, [0], max_queries=60) == pytest.approx(
        retrieval_scores(Z, y, [0], max_queries=60), abs=1e-12
    )


def test_classes_without_a_sampled_query_have_no_auc():
    y = np.repeat(np.arange(400), 2)
    scores = query_scores(np.random.default_rng(0).normal(size=(800, 2)), y, max_queries=50)
    auc = scores.class_auc()[2]
    assert 350 <= np.isnan(auc).sum() < 400


def test_a_number_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match=r"max_queries: expected None \(all\) or at least 2, got 1"):
        retrieval_scores(np.eye(3), [0, 0, 1], max_queries=1)
