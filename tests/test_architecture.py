"""Imports point one way, lazy ones included: down the floors that CONTRIBUTING shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

# From the top to the ground. A module may import its own floor and those below.
FLOORS = (
    ("sweep.cli", "sweep.__main__", "sweep.commands"),
    ("sweep.api",),
    ("dashboards", "sweep.remote"),
    ("sweep.engine",),
    ("sweep.store",),
    ("sweep.studies",),
    ("sweep.datasets",),
    ("sweep.fits",),
    ("sweep.methods",),
    ("sweep.code",),
    ("sweep.errors", "sweep.exits", "sweep.seeds", "sweep.urls"),
    ("solvers.kernels",),
    ("solvers.memory",),
    ("solvers.methods", "solvers.convex", "solvers.projection", "solvers.other", "solvers.theory"),
    ("solvers.mahalanobis",),
    ("solvers.base", "solvers.scores"),
    ("solvers.pairs", "solvers.regularizers"),
    ("solvers.backend",),
)
# The package's front doors load what they name on first use, from any floor.
DOORS = {"sweep", "solvers"}
# `ray submit` copies this one file to the head, where it is the `sweep` command.
SCRIPTS = {("sweep.remote.submit", "sweep.cli")}


@cache
def modules() -> dict[str, Path]:
    found = {}
    for top in ("sweep", "solvers", "dashboards"):
        for file in (ROOT / top).rglob("*.py"):
            parts = list(file.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(name: str) -> Iterator[str]:
    """Modules of the project that a module imports, anywhere in it, but for type checking only."""
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        for target in wanted:
            while target and target not in modules():
                target = target.rpartition(".")[0]
            if target and target != name and not name.startswith(target + "."):
                yield target


def edges() -> dict[str, set[str]]:
    graph = {name: set(imports(name)) for name in modules() if name not in DOORS}
    for source, target in SCRIPTS:
        graph[source].discard(target)
    return graph


def floor(name: str) -> int:
    for number, members in enumerate(FLOORS):
        if any(name == member or name.startswith(member + ".") for member in members):
            return number
    raise AssertionError(f"{name} is on no floor: give it one here and in CONTRIBUTING.md")


def test_every_module_has_a_floor() -> None:
    for name in modules():
        if name not in DOORS:
            floor(name)


def test_no_import_goes_up() -> None:
    up = [f"{a} -> {b}" for a, targets in edges().items() for b in targets if b not in DOORS and floor(b) < floor(a)]
    assert up == []


def test_no_modules_import_each_other() -> None:
    graph = edges()

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for following in graph.get(waiting.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return seen

    assert [name for name in graph if name in reach(name)] == []


def test_solvers_know_neither_sweeps_nor_their_tools() -> None:
    forbidden = ("sweep", "dashboards", "ray", "optuna", "mlflow")
    for name, file in modules().items():
        if name.startswith("solvers"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                named = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not [each for each in named if each.split(".")[0] in forbidden], name


def test_contributing_shows_the_floors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [m for members in FLOORS for m in members if m.partition(".")[2] and m.split(".")[-1] not in text]
    assert missing == []
