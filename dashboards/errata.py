"""Errata of the paper, by the numbers that docs and solvers refer to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Erratum:
    """One thing in the paper that is not as printed."""

    number: int
    about: str
    text: str

    @property
    def label(self) -> str:
        return f"E{self.number}"


_METHOD, _THEORY, _DATA, _TABLES, _PEERS = "method", "theory", "data and protocol", "tables", "other methods"

_LINES = (
    (
        _METHOD,
        "The proximal step of CLDD has a wrong sign in its constant: t (1 + eps log eps) is right, t (1 - eps "
        "log eps) is printed; the formula of the root then uses a, b, c in two meanings.",
    ),
    (
        _METHOD,
        "Comparing the objective at the candidates of a proximal step is unnecessary: the objective is "
        "strictly convex, so the answer is the stationary point, or zero if that is negative.",
    ),
    (
        _METHOD,
        "The data part of the objective is its first and third term, not the first and second; the norm of "
        "the proximal step is Frobenius, printed as spectral; two symbols stand for one regularizer.",
    ),
    (
        _METHOD,
        "The log-determinant divergence is printed without its term -D, so its approximation misses +D.",
    ),
    (
        _METHOD,
        "The error of the von Neumann approximation is of order D eps log(1/eps).",
    ),
    (
        _METHOD,
        "The step that appeals to convexity of logdet needs that of -logdet; logdet is concave.",
    ),
    (
        _METHOD,
        "The trace is the convex envelope of the rank on the ball of spectral norm at most 1 only.",
    ),
    (
        _METHOD,
        "The number of projection vectors depends on the threshold below which an eigenvalue counts as zero, "
        "which is not given; the three regularizers raise the rank rather than lower it.",
    ),
    (
        _THEORY,
        "The feature values of Theorem 1 are defined by an argmin that leads to the largest eigenvalue; an "
        "argmax is meant.",
    ),
    (
        _THEORY,
        "Symbols change on the way through the proof of Theorem 1 (gamma and lambda with the same index, an "
        "index that runs in a class number, the same value twice where two are compared).",
    ),
    (
        _THEORY,
        "The noise level xi is printed as a mean distance; the proof needs the mean squared distance.",
    ),
    (
        _THEORY,
        "The margin tau_0 uses a bound of the trace by K (1 + eps_0), which fails for more projection vectors "
        "than classes; (1 + eps_0) B_0^2 is enough.",
    ),
    (
        _THEORY,
        "Lemma 1, that class means lie in the row space at the optimum, does not follow as proved, and "
        "bounded noise of unequal size is a counter-example.",
    ),
    (
        _THEORY,
        "SFN is said to admit no bound and not to be spectral; it is spectral, and has a bound of the "
        "condition number.",
    ),
    (
        _THEORY,
        "log x - x is said to be largest at 2; 2 log x - x is. The bound for LDD can be made tight: "
        "(sqrt(e^w) + sqrt(e^w - 1))^2 instead of 4 e^w.",
    ),
    (
        _THEORY,
        "The lemma that bounds the trace by the LDD regularizer fails at M = (1 - eps) I.",
    ),
    (
        _THEORY,
        "The factor B^2 is lost in the bounds for CLDD and CSFN; one lemma prints B for 2 B^2; the distance "
        "of M to I needs its squared Frobenius norm.",
    ),
    (
        _THEORY,
        "With separate means over similar and dissimilar pairs, the Rademacher term is 4R instead of 2R; a "
        "second slip makes up for it if both kinds of pairs are equally many.",
    ),
    (
        _THEORY,
        "The radius B is taken over similar pairs only; the proof needs dissimilar pairs, too.",
    ),
    (
        _THEORY,
        "A reference to the first bound of Theorem 1 means Theorem 2, and some labels exist twice.",
    ),
    (
        _DATA,
        "Frequent cannot mean more than 1,000 examples on MIMIC and EICU: their frequent classes hold 218 and "
        "492 examples on average.",
    ),
    (
        _DATA,
        "Act has 561 features, yet 1,000 projection vectors are printed for GMML and MDML-IT.",
    ),
    (
        _DATA,
        "The AUC is introduced as that of precision and recall in one place and of the ROC curve in another; "
        "the printed values can only be the latter.",
    ),
    (
        _DATA,
        "Cross-validation has 5 folds in the settings and 3 in the account of the time.",
    ),
    (
        _DATA,
        "Reuters has 48 classes in one place and 49 in another.",
    ),
    (
        _DATA,
        "The News split of 11,307 and 7,538 adds up to 18,845 of 18,846 examples (60/40).",
    ),
    (
        _DATA,
        "Birds with 11,788 images is CUB-200-2011; the older CUB-200 is cited.",
    ),
    (
        _DATA,
        "The datasets are said to have no standard split; Cars, Act and News have one.",
    ),
    (
        _TABLES,
        "Some figures contradict their neighbours: the balance score of PDML-SFN on EICU (.048, printed "
        ".045), the compactness of MDML-CVND on Reuters (16.1, printed 16.0), AUC over all classes in 13 rows "
        "of Reuters and in MDML-OS on EICU.",
    ),
    (
        _TABLES,
        "Not all convex methods are more balanced than all baselines: MDML-CSFN is not (.039 against .032 on "
        "MIMIC, .049 against .038 on EICU).",
    ),
    (
        _TABLES,
        "Training times of MDML-l2, -l1 and others equal that of the untuned MDML, although tuning takes twelve runs.",
    ),
    (
        _TABLES,
        "ITML and EUC are missing from the table of AUC; the citation for LMNN names the authors of ITML.",
    ),
    (
        _PEERS,
        "The formula of LDML has no bias, so that no pair is ever more likely similar than not; it also "
        "subtracts an example from itself.",
    ),
    (
        _PEERS,
        "ITML bounds the distance of dissimilar pairs from below; the text bounds it from above.",
    ),
    (
        _PEERS,
        "The formula of the incoherence penalty IC has lost an exponential, or an exponent.",
    ),
    (
        _PEERS,
        "CS, DPP, MA and IC are scores to be made large; as printed they would be made small.",
    ),
    (
        _PEERS,
        "The margin is called t in the settings and tau elsewhere.",
    ),
    (
        _THEORY,
        "The compactness factor is written with singular values where eigenvalues are meant.",
    ),
)

ERRATA = tuple(Erratum(number, about, text) for number, (about, text) in enumerate(_LINES, start=1))
