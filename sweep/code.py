"""Users' own code: found by dotted path, told apart by its source, carried to where fits run.

Only what the user's own sweep file names is imported, and only by `run`, `plan` and `submit`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.errors import UserError, first_line, nearest

# What may travel to workers: code, not data.
_MOST_BYTES = 50 * 2**20


def load(path: str, where: str) -> Any:
    """The object at `package.module:name`; `where` opens the error line."""
    module, separator, name = path.partition(":")
    if not (separator and module and name.isidentifier()):
        raise UserError(f"{where}: expected a dotted path like mypkg.module:Name, got {path!r}")
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # whatever the user's module raises when it is imported
        hint = "" if _is_there(module) else "; list its folder or file under code: if it lies beside the sweep file"
        raise UserError(f"{where}: cannot import {module!r}: {first_line(error)}{hint}") from None
    if not hasattr(loaded, name):
        public = [each for each in vars(loaded) if not each.startswith("_")]
        raise UserError(f"{where}: {module!r} has no {name!r}.{nearest(name, public)}")
    return getattr(loaded, name)


def entry_points(group: str) -> dict[str, str]:
    """Name -> dotted path of what installed packages offer; nothing is imported."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=f"orthosweep.{group}")}


def fingerprint(path: str) -> str:
    """What tells one version of the code behind a dotted path from another.

    Of an installed package its version; otherwise the source of the module and of what it imports from its
    own package, or from files beside it.
    """
    module = path.partition(":")[0]
    top = module.partition(".")[0]
    source = _source(module)
    if source is None or "site-packages" in source.parts:
        owners = importlib.metadata.packages_distributions().get(top, [])
        return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(owners))) or top
    content = hashlib.sha256()
    for name, file in sorted(_closure(module).items()):
        content.update(f"{name}\0".encode() + file.read_bytes())
    return content.hexdigest()[:16]


def make_importable(folder: Path) -> None:
    """Let modules beside a sweep file be imported, as Python does for the folder of a script."""
    text = str(folder.resolve())
    if text not in sys.path:
        sys.path.insert(0, text)


def bundle(names: Sequence[str], folder: Path) -> dict[str, bytes]:
    """The files under `names`, files or folders below `folder`, by relative path: what workers need."""
    files: dict[str, bytes] = {}
    root = folder.resolve()
    for index, name in enumerate(names):
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise UserError(f"code[{index}]: {name!r} lies outside the sweep file's folder; put it beside the file")
        if not path.exists():
            raise UserError(f"code[{index}]: {name!r} is not there; expected a file or folder beside the sweep file")
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            if file.is_file() and "__pycache__" not in file.parts:
                files[file.relative_to(root).as_posix()] = file.read_bytes()
    size = sum(map(len, files.values()))
    if size > _MOST_BYTES:
        raise UserError(f"code: {size / 2**20:.0f} MB, expected at most {_MOST_BYTES / 2**20:.0f}; name only the code")
    return files


def unbundle(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a bundle below `folder` and let it be imported."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    make_importable(folder)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _source(module: str) -> Path | None:
    """The file that a module is read from; None if there is none to read."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _closure(module: str) -> dict[str, Path]:
    """The module and, over and over, what it imports from its own package or its own folder."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        source = _source(name)
        if name in found or source is None or "site-packages" in source.parts or not _is_near(name, module):
            continue
        found[name] = source
        waiting += _imports(name, source)
    return found


def _is_near(name: str, module: str) -> bool:
    if name.partition(".")[0] == module.partition(".")[0]:
        return True
    here, there = _source(module.partition(".")[0]), _source(name.partition(".")[0])
    if here is None or there is None:
        return False
    root = here.parent.parent if here.name == "__init__.py" else here.parent
    return there.is_relative_to(root)


def _imports(name: str, source: Path) -> Iterator[str]:
    package = name if source.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
