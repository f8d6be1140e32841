"""`python -m tests.acceptance cupy`: run every check and write what was found as one page and one JSON file.

Exit codes: 0 all passed, 1 some did not, 3 there is no such device here.
"""

from __future__ import annotations

import argparse
import html
import importlib
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from solvers.backend import gpu_count
from tests.acceptance.checks import Check, run_all

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin: .5em 0 2em } td, th { padding: .15em .8em; text-align: left }
tr:nth-child(even) { background: #f3f3f3 } .failed { color: #a00 } .passed { color: #070 }
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance", description=__doc__)
    parser.add_argument("library", choices=["cupy", "dpnp", "numpy", "array_api_strict"])
    parser.add_argument("--out", type=Path, default=Path("gpu-acceptance"), help="the two files, without their endings")
    parser.add_argument("--quick", action="store_true", help="few methods and fits: to try this program itself")
    options = parser.parse_args(arguments)
    if options.library == "cupy" and not gpu_count():
        print("gpu-acceptance: CuPy sees no GPU here; on a machine with one, `sweep doctor` says what is missing")
        return 3
    try:
        importlib.import_module(options.library)
    except ImportError:
        print(f"gpu-acceptance: {options.library} is not installed here")
        return 3
    began, checks = time.time(), []
    with tempfile.TemporaryDirectory(prefix="gpu-acceptance-") as folder:
        for check in run_all(options.library, Path(folder), quick=options.quick):
            print(f"{'passed' if check.passed else 'FAILED'}: {check.name}: {check.told}", flush=True)
            checks.append(check)
    passed = all(check.passed for check in checks)
    verdict = f"{options.library}: {'accepted' if passed else 'NOT accepted'} in {time.time() - began:.0f} s"
    facts = {
        "library": options.library,
        "passed": passed,
        "began": began,
        "checks": [asdict(check) for check in checks],
    }
    text = json.dumps(facts, indent=1, default=str)
    options.out.with_suffix(".json").write_text(text)
    options.out.with_suffix(".html").write_text(page(verdict, checks, text))
    print(f"{verdict}; send {options.out.with_suffix('.html')} along if you report this")
    return int(not passed)


def page(verdict: str, checks: list[Check], text: str) -> str:
    """One HTML file without any other, the JSON inside."""
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(verdict)}</title><style>{_STYLE}</style>"]
    parts.append(f"<h1>{html.escape(verdict)}</h1>")
    for check in checks:
        state = "passed" if check.passed else "failed"
        parts.append(f'<h2>{html.escape(check.name)} <span class="{state}">{state}</span></h2>')
        parts.append(f"<p>{html.escape(check.told)}</p>{table(check.rows)}")
    safe = text.replace("<", "\\u003c")  # nothing in it may end the script
    return "\n".join([*parts, f'<script type="application/json">{safe}</script>'])


def table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in names) + "</tr>"]
    for row in rows:
        lines.append("<tr>" + "".join(f"<td>{html.escape(shown(row.get(name)))}</td>" for name in names) + "</tr>")
    return "\n".join([*lines, "</table>"])


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
