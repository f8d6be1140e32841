"""Every constant of the certified solver that was chosen, with its reason.

None of them can make a result wrong: bound and objective are measured at the end, whatever the iteration did. They
decide how many eigendecompositions it takes. "Earlier" means measured on a former version of the iteration and kept;
what has no measurement says "reasoned". `tests/benchmarks/bench_mdml.py` prints counts for families that may set
constants (`tuned-on`) and for others that may not (`held-out`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How accurately the box model is maximised.

    Attributes
    ----------
    rounds, enough : of the active-set method at most, and the share of the gain so far that ends them.
    solves, solved : steps of conjugate gradients in each at most, and the residual that ends them.
    sample : the Newton system is solved on at most so many pairs and extended to the others.
    proposals, proposed : how often the pair model is asked in one step where it is not exact, while the last answer has
        brought this share of all.
    beyond : coordinates that a step looks at, where the metric has a rank: as many as that, and this share of all.
    watched : within a step, exact distances are followed of the pairs that would be in play at so many times the gap.
    """

    rounds: int
    enough: float
    solves: int
    solved: float
    sample: int
    proposals: int = 4
    proposed: float = 0.2
    beyond: float = 1.0
    watched: float = 1e9


@dataclass(frozen=True)
class Tuning:
    """Constants of the iteration; lengths are in margins, since the solver works on a problem with margin 1.

    Attributes
    ----------
    smoothing : the hinge is smoothed by this many times the gap at the level: less makes the box model stiff, more
        moves its optimum away. 16 families to 1e-3: 1,822 decompositions, with 3 1,861 and one fit that stalls.
    path_smoothing : least smoothing, over the gap still open, where the gap at the level says little. Counts, earlier.
    idle : settled pairs stay where they are while moving them would gain less than this share of the gap: saves a pass
        over all pairs. Seconds on 100,000 pairs, earlier.
    settled : how far from its bound the weight of a pair far from the margin may be to count as settled. Reasoned.
    terms : metrics that a mixture holds before they are added up; each holds a matrix. Memory.
    levels : penalties of each of the two families that are tried for every decomposition. Counts level off at 16.
    judges : pairs that tell which of them is best. More changed no choice on Act, earlier.
    descent : a step aims at a penalty lower by at most this factor, as interior-point methods do. Reasoned.
    weaken, weaken_to_limit : a stronger regularizer is lowered by at most this factor; by the second where the dual has
        a limit (cldd, it), near which a step that aims further ends outside it. Paths of csfn within 1e-2, Act and
        Reuters: 9 and 13 eigendecompositions, with 3 11 and 13; of cldd, with the first `most_reach`, 14 and 17, with
        5 24 and 16.
    centred : it aims as low as that while the gap at the level is below a share of the excess, 1 / descent of this one;
        at the level itself where the gap is above this share. Reasoned.
    most_excess, least_excess : what all barriers together add to the gap, at first (all of the hinge at M = 0), and
        where they count as none (over the tolerance). Reasoned.
    astray : barriers below the one aimed at are not looked at where the gap there is so many times the one known.
        A table, csfn, 1e-4: without it a step that overshot is followed by hundredths of steps.
    retries : where the iteration has stalled, parts of the best weights to go on from, in double precision. A part is
        further inside the dual's domain, where the path of optima is found again; that table took 9 steps from there.
    patience, progress : the iteration has stalled where the gap has not fallen to this share of itself in so many
        steps. Reasoned: two steps lower a level by `descent`.
    outside : as patience, where the weights of a fit with a larger gamma are still outside the dual's domain; a part of
        them is inside. Path of cldd on Reuters: 32 instead of 34 with 1, but warm fits on digits take two more.
    most_failed : so many proposals without a step are followed by one with less smoothing. Reasoned.
    single_tol : single precision serves down to this tolerance; its rounding shows from about 1e-5 on.
    line_steps, tight_line_steps : golden-section steps of a search along a line of metrics. Reasoned.
    armijo : share of the promised gain that a step has to bring. The usual one.
    shortest : shares of a step below this are not tried. Reasoned.
    model_rank : coordinates that the pair model takes as they are; counts on Act rise below 32, earlier.
    all_coordinates : so few coordinates are all taken as they are. Seconds, earlier.
    groups : groups of coordinates that the rest is summed up in. Counts on Act, earlier.
    few_pairs : so few pairs have their differences at hand. Seconds, earlier.
    followed : eigenvalues that are followed along a line, at most half of them; the others move straight on. Reasoned.
    to_barrier : share of the way to where an eigenvalue would cross its barrier. The usual one of interior-point
        methods; digits, cvnd, 1e-4: 14 instead of 19 eigendecompositions.
    lanczos : steps that tell how far that is. Reasoned: an error costs a shortened step.
    shorter, shortening : how often, and by what, a step is shortened before it is tried. Reasoned.
    damping, damping_factor : of the box model's first step, and the factor by which it changes. Counts, earlier.
    rough, rough_tol : how accurately the box model is maximised down to which tolerance. Paths of csfn, cvnd, cldd
        within 1e-2 on Act, with the loose one and with this: 6.0, 7.6, 7.8 and 4.9, 6.8, 6.1 CPU seconds, 10, 12, 17
        and 10, 12, 13 eigendecompositions. With all coordinates and all pairs followed, three draws of each of these
        on Act and Reuters take 283 eigendecompositions and 162 s, with this 281 and 151 s; within 1e-3 `beyond` costs
        csfn on Reuters 44 instead of 30, so it is for rough answers only.
    loose, knots, tight : the same below it, in single precision for fits and for the knots of paths, and in double.
        Knots ask the pair model more often. Path of cvnd within 1e-3 on Reuters: 54 eigendecompositions, with loose
        knots 63, earlier. Cold fits to 1e-3 there: 126 instead of 135, for a quarter more time. Blobs, wine and two
        rotated families to 1e-5 at gamma 1e-6, 1e-4 and 1e-2: with the loose one 15 of 60 fits stall, with the tight
        one none. To 1e-3 on 16 families, `enough` of the loose one at 0.02 costs 5 % more decompositions, 26 instead of
        18 at the most, and saves a sixth of the time.
    knot_tol : a path's knots are solved to this share of its tolerance on the way down. Paths of csfn, cvnd, cldd
        within 1e-2, digits 10, 16, 16, Reuters 12, 24, 20; with 0.6 12, 17, 17 and 13, 26, 20, earlier.
    proofs : gammas between two knots at which their weights and metrics are blended.
    blending : golden-section steps for the shares of a blend. Reasoned.
    reach_step : ratio of the gammas at which a knot's reach is tried.
    first_ratio, most_ratio, most_ratio_tol : of one knot to the next, the most for paths within this tolerance; it
        falls with its cube root, as the gap between two knots rises. Paths of csfn, cvnd within 1e-2, Act: 9 and 12
        eigendecompositions in 5 and 9 knots; with 2.2 9 and 13 in 6 and 11.
    filled : share of the gap's room between two knots that the next is placed to fill. Earlier.
    last : where the way to the end is less than so many times the distance to the next knot, the next is the end.
        Reasoned.
    most_reach, most_reach_to_limit : how far below what the last knot covers the next one may be; the second as above.
        A knot that is covered costs no eigendecomposition, and the one after it starts from nearer. Paths of csfn and
        cvnd within 1e-2, three draws of Act and Reuters: 170 eigendecompositions, with 4 186, with 1 181; of cldd 98,
        with 2 109, with 1.5 110.
    above, below, further : around a knot, gammas over its own for which its eigenvectors give a metric; below these, as
        long as they are within the tolerance, by this ratio. Path of cvnd on Reuters: 24 eigendecompositions; with
        seven of them 27, earlier.
    negligible : eigenvalues of a metric of a path are left out that change F by less than this share of the tolerance.
        Three draws of csfn, cvnd and cldd on Act and Reuters: 156 s instead of 162, as many eigendecompositions.
    polish : eigenvalues are polished (`solvers.convex.diagonal`) while the gap is within this many tolerances: it
        rarely takes off more. Path of cvnd on Reuters: 23 eigendecompositions instead of 32.
    polishers : pairs that it looks at, at most; F is measured on all. With eight times as many paths
        within 1e-2 take about as many decompositions (digits 26, 38, 35 instead of 25, 39, 36), and a fifth more time.
    single_factors, grouped_factors : eigenvalues that it moves alone, and groups of the others. As good, on Act and
        Reuters, as moving each alone.
    least_factor : how much of an eigenvalue it leaves at least, where log det would be infinite at none.
    hinge_widths : the hinge is smoothed over these widths, one after the other. Reasoned.
    diagonal_steps, diagonal_enough : Newton steps with each, and the share of F that ends them. Reasoned.
    factor_damping : dampings that are tried in turn, over the largest curvature. Without them steps fail on csfn.
    handover : a metric learned on other pairs starts a fit from weights that fall from 1 to 0 over this length below
        the margin. Counts of refits on digits and Act, over 0.01 to 0.8.
    reuse : share of the tolerance that the rounding of a decomposition at hand may cost before a fresh one is made.
    """

    smoothing: float = 1.0
    path_smoothing: float = 1e-3
    idle: float = 0.02
    settled: float = 0.02
    terms: int = 8
    levels: int = 20
    judges: int = 4096
    descent: float = 10.0
    weaken: float = 5.0
    weaken_to_limit: float = 2.0
    centred: float = 0.5
    most_excess: float = 1.0
    least_excess: float = 1e-4
    astray: float = 5.0
    retries: tuple[float, ...] = (0.7, 1.0)
    patience: int = 6
    outside: int = 2
    progress: float = 0.9
    most_failed: int = 3
    single_tol: float = 1e-4
    line_steps: int = 16
    tight_line_steps: int = 40
    armijo: float = 1e-4
    shortest: float = 1e-4
    model_rank: int = 48
    all_coordinates: int = 128
    groups: int = 8
    few_pairs: int = 8192
    followed: int = 64
    to_barrier: float = 0.95
    lanczos: int = 12
    shorter: int = 10
    shortening: float = 0.7
    damping: float = 0.3
    damping_factor: float = 6.0
    rough: Effort = Effort(rounds=40, enough=0.02, solves=40, solved=0.05, sample=3000, beyond=0.4, watched=16.0)
    rough_tol: float = 5e-3
    loose: Effort = Effort(rounds=40, enough=0.005, solves=40, solved=0.01, sample=3000)
    knots: Effort = Effort(rounds=40, enough=0.005, solves=40, solved=0.01, sample=3000, proposals=6, proposed=0.02)
    tight: Effort = Effort(rounds=200, enough=1e-4, solves=400, solved=1e-4, sample=20_000)
    negligible: float = 0.01
    polish: float = 20.0
    polishers: int = 4096
    single_factors: int = 24
    grouped_factors: int = 24
    least_factor: float = 1e-4
    hinge_widths: tuple[float, ...] = (0.1, 0.02)
    diagonal_steps: int = 6
    diagonal_enough: float = 1e-5
    factor_damping: tuple[float, ...] = (1e-6, 1e-4, 1e-2, 1.0)
    handover: float = 0.05
    reuse: float = 0.05
    knot_tol: float = 0.8
    proofs: int = 5
    blending: int = 12
    reach_step: float = 1.5
    first_ratio: float = 2.2
    most_ratio: float = 3.0
    most_ratio_tol: float = 1e-2
    last: float = 1.3
    most_reach: float = 1.2
    most_reach_to_limit: float = 2.5
    filled: float = 0.6
    above: tuple[float, ...] = (1.15, 1.35, 1.6, 1.9)
    below: tuple[float, ...] = (0.85, 0.7, 0.55, 0.4, 0.25)
    further: float = 0.6


TUNING = Tuning()
