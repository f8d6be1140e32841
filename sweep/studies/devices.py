"""Which fits go to a GPU where there are both: those that gain most by it, until GPUs and cores are equally busy.

What a fit would take on each is not known before it ran; what an iteration of its method takes at its size is timed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from solvers.memory import ProblemSize
from sweep.datasets.card import DatasetCard
from sweep.fits import FitSpec
from sweep.fits.memory import needed_bytes, problem_size
from sweep.methods import known_method
from sweep.studies.base import Study

CPU, GPU = "cpu", "gpu"


@dataclass(frozen=True)
class Kind:
    """Fits that take about the same on a device: one method on one dataset at one rank."""

    dataset: str
    method: str
    rank: int | None

    @classmethod
    def of(cls, spec: FitSpec) -> Kind:
        return cls(spec.dataset, spec.method, spec.trial.get("rank"))


@dataclass(frozen=True)
class Work:
    """How much there is of a kind: its largest problem, the memory for it, and how many fits at most."""

    kind: Kind
    size: ProblemSize
    needed: int
    tasks: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Work:
        """Inverse of `dataclasses.asdict`, after a round trip through JSON."""
        return cls(**{**values, "kind": Kind(**values["kind"]), "size": ProblemSize(**values["size"])})


Parts = Mapping[str, float]  # seconds of an iteration by part, as in solvers.kernels.KernelSeconds


@dataclass(frozen=True)
class Timed:
    """An iteration on a core and on a GPU; without the latter if it was not timed."""

    work: Work
    cpu: Parts
    gpu: Parts | None = None

    @property
    def gain(self) -> float:
        """How many times faster the GPU is."""
        return 0.0 if self.gpu is None else sum(self.cpu.values()) / max(sum(self.gpu.values()), 1e-12)


@dataclass(frozen=True)
class Choice:
    """Where a kind of fits goes, and why."""

    kind: Kind
    device: str
    why: str


@dataclass(frozen=True)
class Devices:
    """What was found out about the devices of a cluster: to be kept in a home, and to choose by.

    Attributes
    ----------
    cpus, gpus : how many there are; `gpus_per_fit` of the latter go to one fit.
    gpu, gpu_bytes : name and memory of the GPU that was timed.
    timed : one for every kind.
    """

    cpus: int
    gpus: float
    gpus_per_fit: float
    gpu: str = ""
    gpu_bytes: int = 0
    timed: Sequence[Timed] = ()

    @property
    def room(self) -> int:
        """Bytes of a GPU's memory that a fit may take; 0 without a GPU."""
        return int(min(1.0, self.gpus_per_fit) * self.gpu_bytes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Devices:
        timed = [Timed(Work.from_dict(each["work"]), each["cpu"], each["gpu"]) for each in values["timed"]]
        return cls(**{**values, "timed": timed})


def works(studies: Iterable[Study], cards: Mapping[str, DatasetCard]) -> list[Work]:
    """The kinds of a plan's fits on arrays, in the order of the plan; the others know no GPU."""
    found: dict[Kind, Work] = {}
    for study in studies:
        fits = study.start() if known_method(study.template.method).device == "array" else []
        firsts = {Kind.of(fit): fit for fit in reversed(fits)}
        counts = Counter(map(Kind.of, fits))
        for kind, fit in reversed(firsts.items()):
            if kind not in found:
                # The refit, which is the largest: all of the training part, scored on the test part.
                card, refit = cards[fit.dataset], replace(fit, fold=None, restarts=study.template.restarts)
                size = problem_size(refit, card.train_size, card.dimension)
                needed = needed_bytes(refit, card.train_size, card.n_examples - card.train_size, card.dimension)
                found[kind] = Work(kind, size, needed, 0)
            # What a study starts with stands for all that it may ask for.
            tasks = max(1, counts[kind] * study.size.tasks // len(fits))
            found[kind] = replace(found[kind], tasks=found[kind].tasks + tasks)
    return list(found.values())


def choose(devices: Devices) -> list[Choice]:
    """The device of every kind that was timed.

    Sorted by gain, kinds go to the GPUs from the top; the cut is where the longer of the two queues is shortest. All
    iterations count alike: how many a fit takes is not known.
    """
    gpu_slots = int(devices.gpus / devices.gpus_per_fit) if devices.gpus_per_fit else 0
    if not gpu_slots:
        return [Choice(timed.work.kind, CPU, "there is no GPU for it") for timed in devices.timed]
    cpu_slots = devices.cpus - gpu_slots  # a fit on a GPU keeps a core busy, too
    able = [timed for timed in devices.timed if timed.gpu is not None and timed.work.needed <= devices.room]
    unable = [timed for timed in devices.timed if timed not in able]
    ranked = [*sorted(able, key=lambda timed: -timed.gain), *unable]
    cut = min(range(len(able) + 1), key=lambda k: (_makespan(ranked, k, cpu_slots, gpu_slots), -k))
    chosen = {timed.work.kind: _choice(timed, place < cut, devices.room) for place, timed in enumerate(ranked)}
    return [chosen[timed.work.kind] for timed in devices.timed]


def _makespan(ranked: Sequence[Timed], cut: int, cpu_slots: int, gpu_slots: int) -> float:
    """Seconds until both queues are empty, per iteration, if the first `cut` kinds go to GPUs."""
    on_gpu = sum(timed.work.tasks * sum((timed.gpu or {}).values()) for timed in ranked[:cut])
    on_cpu = sum(timed.work.tasks * sum(timed.cpu.values()) for timed in ranked[cut:])
    if on_cpu and cpu_slots < 1:
        return math.inf
    return max(on_gpu / gpu_slots, on_cpu / max(1, cpu_slots))


def _choice(timed: Timed, to_gpu: bool, room: int) -> Choice:
    kind, gain = timed.work.kind, timed.gain
    if timed.gpu is None:
        return Choice(kind, CPU, "its kernels did not run on the GPU")
    if timed.work.needed > room:
        return Choice(kind, CPU, f"may need {timed.work.needed / 1e9:.1f} GB, a GPU has {room / 1e9:.1f} GB for a fit")
    told = f"{gain:.1f} times faster on a GPU" if gain >= 1 else f"{1 / gain:.1f} times slower on a GPU"
    if to_gpu:
        return Choice(kind, GPU, told if gain >= 1 else f"{told}, but there are too few cores")
    return Choice(kind, CPU, told if gain < 1 else f"{told}, but GPUs are busy with what gains more")


def chooser(choices: Iterable[Choice]) -> Callable[[FitSpec], str]:
    """The device of any fit: that of its kind, or of the kind with the nearest rank (a search tries others)."""
    chosen = {choice.kind: choice.device for choice in choices}

    def device(spec: FitSpec) -> str:
        kind = Kind.of(spec)
        if kind not in chosen:
            alike = [k for k in chosen if (k.dataset, k.method) == (kind.dataset, kind.method)]
            kind = min(alike, key=lambda k: abs((k.rank or 0) - (kind.rank or 0)), default=kind)
        return chosen.get(kind, CPU)

    return device
