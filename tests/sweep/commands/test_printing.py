"""Tables fit the terminal, and cut nothing that has room."""

from __future__ import annotations

import pytest

from sweep.commands.printing import print_table

ROW = {"method": "pdml-vnd", "balance": 0.0269, "chosen": "gamma=0.001 rank=5 to 10", "fits": "600+15"}


@pytest.mark.parametrize("columns", range(40, 61))
def test_columns_are_left_out_before_a_text_is_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table([ROW], optional=("balance",))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    shown = [name for name in ROW if name in lines[0]]
    needed = sum(max(len(name), len(str(ROW[name]))) for name in shown) + 2 * (len(shown) - 1)
    assert (ROW["chosen"] in lines[2]) == (needed <= columns)
    assert ("balance" in shown) == (columns >= 51)


@pytest.mark.parametrize("first", [0, 1])
def test_values_stay_under_their_names_where_a_row_lacks_one(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": 1, "b": 2, "c": 3}, {"a": 4, "c": 6}][:: 1 - 2 * first]
    print_table(rows)
    head, _, *lines = capsys.readouterr().out.splitlines()
    shown = [dict(zip(head.split(), line.split(), strict=True)) for line in lines]
    assert shown == [{name: str(row.get(name, "-")) for name in "abc"} for row in rows]
