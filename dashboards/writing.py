"""Tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dashboards.tables import Table


def write_table(table: Table, folder: Path) -> list[Path]:
    """One file per format; returns their paths."""
    texts = {"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)}
    paths = []
    for suffix, text in texts.items():
        path = folder / f"{table.name}.{suffix}"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def to_csv(table: Table) -> str:
    """Full precision; the levels of a column's name joined by spaces."""
    frame = table.frame.copy()
    frame.columns = pd.Index(_names(frame))
    return frame.to_csv(lineterminator="\n")


def to_markdown(table: Table) -> str:
    """A pipe table; the best figures are bold."""
    header = [str(table.text.index.name or ""), *_names(table.text)]
    lines = [header, ["---"] * len(header)]
    for row, cells in zip(table.text.index, table.text.itertuples(index=False), strict=True):
        marked = (
            f"**{cell}**" if (row, column) in table.best else cell
            for column, cell in zip(table.text.columns, cells, strict=True)
        )
        lines.append([str(row), *marked])
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.title}.** {table.note}\n\n{body}\n"


def to_latex(table: Table) -> str:
    """A booktabs table."""
    text = table.text.map(_escaped)
    for row, column in table.best:
        text.loc[row, column] = rf"\textbf{{{text.loc[row, column]}}}"
    header = [_escaped(name) for name in [str(text.index.name or ""), *_names(text)]]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}. {_escaped(table.note)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(header) + r" \\",
        r"\midrule",
        *(" & ".join([_escaped(str(label)), *cells]) + r" \\" for label, *cells in text.itertuples()),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _names(frame: pd.DataFrame) -> list[str]:
    if isinstance(frame.columns, pd.MultiIndex):
        return [" ".join(part for part in column if part) for column in frame.columns]
    return [str(column) for column in frame.columns]


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
