"""Every constant of the certified solver that was chosen by measuring, with its reason.

None of them can make a result wrong: bound and objective are measured at the end, whatever the iteration did. They
decide how many eigendecompositions it takes. "Counts" below are those that
`tests/benchmarks/bench_mdml.py` prints (`test_eigendecompositions_*`), on the data named there as tuned on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Constants of the iteration; lengths are in margins, since the solver works on a problem with margin 1.

    Attributes
    ----------
    smoothing : the hinge is smoothed by this many times the gap still open: less makes the box model stiff, more
        moves its optimum away. Counts, over 1 to 10.
    least_smoothing : where the factor above has been cut to this without a step being found, the iteration has stalled.
    path_smoothing : least smoothing on the path, where the gap at the level says little. Counts.
    idle : settled pairs stay where they are while moving them would gain less than this share of the gap: saves a pass
        over all pairs. Seconds on 100,000 pairs.
    settled : how far from its bound the weight of a pair far from the margin may be to count as settled.
    terms : metrics that a mixture holds before they are added up; each holds a matrix. Memory.
    levels : penalties of each of the two families that are tried for every decomposition. Counts level off at 16.
    judges : pairs that tell which of them is best. More changes no choice on Act.
    descent : a step on the path aims at a penalty lower by this factor. Counts, over 2 to 10.
    lowest_level : the helping quadratic term goes down to this; features of mixed scales need it that low.
    taus : how many of its strengths are tried.
    centred : a step goes to a lower level where the gap at the present one is below this share of what it adds.
    patience : the path is left after so many steps that failed.
    single_tol : single precision serves down to this tolerance; its rounding shows from about 1e-5 on.
    progress : the gap has to fall to this share of itself for a step to count.
    greedy_patience, newton_patience : steps that may not, before the greedy path, or the Newton phase, is left. Giving
        up early costs a careful path, giving up late the steps: small gammas on digits.
    strong, least_strong : levels begin this many times above the largest eigenvalue of C_S, or here if it is zero.
    retreat : after a step that failed, levels higher by this factor are tried.
    line_steps, tight_line_steps : golden-section steps of a search along a line of metrics.
    armijo : share of the promised gain that a step has to bring.
    shortest : shares of a step below this are not tried.
    model_rank : coordinates that the pair model takes as they are; counts on Act rise below 32.
    all_coordinates : so few coordinates are all taken as they are.
    groups : groups of coordinates that the rest is summed up in.
    few_pairs : so few pairs have their differences at hand. Seconds.
    followed : eigenvalues that are followed along a line, at most half of them; the others move straight on.
    shorter : how often a step is shortened by `shortening` before it is tried.
    sample : the box model's Newton system is solved on at most so many pairs and extended to the others. Seconds.
    damping, damping_factor : of the box model's first step, and the factor by which it changes. Counts.
    worth_a_lift : on the careful path, a part of the weights is tried where it promises to leave this share of the gap.
    knot_tol : a path's knots are solved to this share of its tolerance. Counts of `bench_path.py`, as the next three.
    proofs : gammas between two knots at which their weights are tried.
    reach_step : ratio of the gammas at which a knot's reach is tried.
    first_ratio, most_ratio : of one knot to the next: a step of the solver's own path goes about as far.
    nearby : around a knot, gammas over its own whose metrics its decomposition gives.
    handover : a metric learned on other pairs starts a fit from weights that fall from 1 to 0 over this length below
        the margin. Counts of refits on digits and Act, over 0.01 to 0.8.
    reuse : share of the tolerance that the rounding of a decomposition at hand may cost before a fresh one is made.
    """

    smoothing: float = 3.0
    least_smoothing: float = 1e-3
    path_smoothing: float = 1e-3
    centred: float = 0.5
    idle: float = 0.02
    settled: float = 0.02
    terms: int = 8
    levels: int = 16
    judges: int = 4096
    descent: float = 3.0
    lowest_level: float = 1e-20
    taus: int = 20
    patience: int = 3
    single_tol: float = 1e-4
    progress: float = 0.9
    greedy_patience: int = 2
    newton_patience: int = 3
    strong: float = 10.0
    least_strong: float = 0.1
    retreat: float = 30.0
    line_steps: int = 16
    tight_line_steps: int = 40
    armijo: float = 1e-4
    shortest: float = 1e-4
    model_rank: int = 48
    all_coordinates: int = 128
    groups: int = 8
    few_pairs: int = 8192
    followed: int = 64
    shorter: int = 10
    shortening: float = 0.7
    sample: int = 3000
    damping: float = 0.3
    damping_factor: float = 6.0
    worth_a_lift: float = 0.2
    handover: float = 0.05
    reuse: float = 0.05
    knot_tol: float = 0.6
    proofs: int = 5
    reach_step: float = 1.5
    first_ratio: float = 2.2
    most_ratio: float = 2.2
    nearby: tuple[float, ...] = (0.125, 0.25, 0.4, 0.6, 0.8, 1.0, 1.3, 1.8)


TUNING = Tuning()
