"""What a report says in words: who is best and how surely, and what a reader must know before trusting a number."""

from __future__ import annotations

import math

import pandas as pd

from dashboards.comparisons import pair_verdicts
from dashboards.efficiency import refusal
from dashboards.records import SweepRecords
from dashboards.statistics import LEVEL, ROPE
from sweep.store.efficiency import efficiency, verdict
from sweep.store.results import ResultRow

_NAMED = 6  # methods or combinations that one sentence names


def summary(sweep: SweepRecords, differences: pd.DataFrame) -> list[str]:
    """The best method of each dataset; then convex against non-convex, where both were run."""
    sentences = [line for dataset in sweep.datasets if (line := _best(sweep, dataset, differences))]
    refused = refusal(sweep)
    if refused:
        sentences.append(refused)
    elif found := efficiency(sweep.rows):
        sentences.append(verdict(found))
    return sentences + pair_verdicts(sweep)


def _best(sweep: SweepRecords, dataset: str, differences: pd.DataFrame) -> str:
    ranked = sweep.ranked(dataset)
    if not ranked:
        return ""
    groups = sweep.results[sweep.results["dataset"] == dataset].groupby("method")["test_score"]
    mean, error = groups.mean(), groups.sem()
    if math.isnan(mean[ranked[0]]):
        return ""

    def score(method: str) -> str:
        spread = "" if math.isnan(error[method]) else f" ± {error[method]:.4f}"
        return f"{mean[method]:.4f}{spread}"

    line = f"{dataset}: {ranked[0]} is best, {sweep.score_title} {score(ranked[0])} on the test part"
    if len(ranked) == 1:
        return f"{line}; it is the only method with a result."
    line += f"; {ranked[1]} follows with {score(ranked[1])}"
    found = differences[
        (differences["dataset"] == dataset) & (differences["first"] == ranked[0]) & (differences["second"] == ranked[1])
    ]
    if found.empty or math.isnan(found.iloc[0]["p"]):
        return f"{line}. Nothing was repeated, so how sure that is is unknown."
    row = found.iloc[0]
    sure = "significant" if row["p_holm"] < LEVEL else "not significant"
    return (
        f"{line}. The difference is {sure} at 5 % (Holm p = {row['p_holm']:.2g}, {row['basis']}); they are practically "
        f"equal, within {ROPE:g}, with probability {row['p_equivalent']:.2f}."
    )


def warnings(sweep: SweepRecords) -> list[str]:
    """What a reader must know before trusting a number."""
    done, notes = len(sweep.fits), []
    if done == 0:
        return ["Nothing has finished yet."]
    if done < sweep.asked:
        notes.append(f"Partial: {done} of {sweep.asked} tasks have finished; methods without a result are left out.")
    lost = sum(failure.final for failure in sweep.failed)
    if lost:
        notes.append(f"{lost} {'task' if lost == 1 else 'tasks'} failed for good; they are listed at the end.")
    notes += _edges([row for row in sweep.rows if row.edge])
    missed = [row for row in sweep.rows if row.missed or row.converged is False]
    if missed:
        notes.append(f"Not every fit reached its tolerance: {_named(missed)}; the tables mark them.")
    if sweep.spec.get("mode") != "benchmark":
        notes.append(
            "Times were taken in production mode, where devices may be shared and fits may start warm; "
            "run with mode: benchmark before quoting them."
        )
    if not sweep.has_gpu:
        notes.append("No fit ran on a GPU: hours are CPU-hours.")
    if int(sweep.spec.get("splits", 1)) == 1:
        notes.append("One random split: there are no standard errors, and differences are judged by the tuning folds.")
    # What sampling adds to a score's error is zero where all queries were asked.
    sampled = {s.dataset for s in sweep.studies for _, record in s.fits if any(record.scores.errors.values())}
    if sampled:
        notes.append(f"Only a sample of the queries was scored on {', '.join(sorted(sampled))} (max_queries).")
    refused = sweep.about.get("refused", [])
    if refused:
        reasons = sorted({f"{r['dataset']} {r['method']} {r['setting']}: {r['reason']}" for r in refused})
        more = " ..." if len(reasons) > _NAMED else ""
        notes.append(f"{len(reasons)} combinations were refused before the start: {'; '.join(reasons[:_NAMED])}{more}")
    return notes + [str(note) for note in sweep.about.get("notes", [])]


def _edges(rows: list[ResultRow]) -> list[str]:
    if not rows:
        return []
    return [
        f"{len(rows)} chosen {'setting lies' if len(rows) == 1 else 'settings lie'} at the edge of what was searched, "
        f"so a better one may lie beyond: {_named(rows)}."
    ]


def _named(rows: list[ResultRow]) -> str:
    methods = list(dict.fromkeys(row.method for row in rows))
    return ", ".join(methods[:_NAMED]) + (f" and {len(methods) - _NAMED} more" if len(methods) > _NAMED else "")
