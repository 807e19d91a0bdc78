"""Packed rows say what the rows say; what a large file was read as is read again, and no other."""

import copy
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from assay.data.loaded import Loaded
from assay.data.renderings import packed_rows
from assay.data.renderings.packed_rows import PackedRow, packed, read_once, remembered
from assay.data.row import Message, Row, ToolCall
from tests.data.renderings.test_prepared import TALK
from tests.data.talks import WEATHER

ROW = Row(
    "a",
    (*TALK[:-1], replace(TALK[-1], loss=False, reasoning="r", name="")),
    (WEATHER,),
    {"answer": [1, 1.0, None]},
    origin="rows.jsonl:1",
    extra={"level": 3},
    template_options={"enable_thinking": True},
    columns={"tools": [WEATHER], "label": "x"},
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setattr(packed_rows, "LARGE", 0)
    return tmp_path


def test_a_packed_row_is_equal_to_its_row_and_so_are_its_copies() -> None:
    made = packed(ROW)
    assert isinstance(made, PackedRow)
    assert made == ROW and made == ROW and asdict(made) == asdict(ROW)
    assert copy.copy(made) == ROW and replace(made, id="b") == replace(ROW, id="b")
    assert made != replace(ROW, gold=1) and made != replace(ROW, messages=ROW.messages[:-1])


@pytest.mark.parametrize(
    "other",
    [
        replace(ROW, messages=TALK[1:]),
        replace(ROW, messages=(TALK[0], Message("assistant", "", (ToolCall("f", {1: 2}),)))),
        replace(ROW, columns={"seen": {1, 2}}),
    ],
)
def test_short_rows_and_what_json_does_not_give_back_stay_as_they_are(other: Row) -> None:
    assert packed(other) is other


def reads(file: Path, rows: tuple[Row, ...] = (ROW,), settings: object = 1) -> tuple[Loaded, int]:
    """What is read of a file, and how often its reader was asked."""
    asked: list[int] = []

    def reader() -> Loaded:
        asked.append(1)
        return Loaded(rows, {"why": ("b",)}, {"words": ("a",)})

    return read_once(file, [settings], reader), len(asked)


def test_a_file_is_read_once_until_it_or_the_settings_change(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert reads(file)[1] == reads(file)[1] == 1  # there is none
    file.write_text("one")
    rows = (ROW, replace(ROW, id="c", messages=TALK[1:]))
    first, again = reads(file, rows), reads(file, rows)
    assert (first[1], again[1]) == (1, 0)
    assert first[0] == again[0]
    assert reads(file, settings=2)[1] == 1
    file.write_text("two")
    assert reads(file)[1] == 1


def test_damage_costs_another_reading(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("one")
    right = reads(file)[0]
    with sqlite3.connect(tmp_path / "prepared.sqlite") as store:
        store.execute("UPDATE prepared SET ids = zeroblob(length(ids))")
    assert [reads(file), reads(file)] == [(right, 1), (right, 0)]


@pytest.mark.parametrize("killed", [True, False])
def test_a_command_that_is_killed_as_it_keeps_a_file_and_two_at_once_change_nothing(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("one")
    keep = packed_rows.keep

    def dies(*values: Any) -> None:
        store = packed_rows._store(packed_rows.cache_root(), os.getpid(), threading.get_ident())
        store.execute("BEGIN")
        keep(*values)
        assert store.execute("SELECT count(*) FROM prepared").fetchone() == (1,)
        os.kill(os.getpid(), signal.SIGKILL)

    packed_rows.close_store()
    children = []
    for _ in range(2):
        if not (child := os.fork()):
            same = False
            monkeypatch.setattr(packed_rows, "keep", dies if killed else keep)
            try:
                same = reads(file)[0].rows == (ROW,)
            finally:
                os._exit(not same)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert ends == [signal.SIGKILL if killed else 0] * 2
    first, again = reads(file), reads(file)
    assert (first[1], again[1]) == (int(killed), 0)
    assert first[0] == again[0] and again[0].rows == (ROW,)


def counted() -> tuple[Callable[[], list[Any]], list[int]]:
    """A function, and how often it was called."""
    calls: list[int] = []
    return lambda: calls.append(1) or [len(calls)], calls


def test_what_is_made_of_long_rows_is_remembered_by_rows_settings_and_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, calls = counted()
    long, other = (packed(ROW),), (packed(replace(ROW, gold=0)),)
    assert remembered("x", long, 1, make) == remembered("x", long, 1, make) == [1]
    more = (*long, ROW), (*long, replace(ROW, columns={}))
    known = [("y", long, 1), ("x", other, 1), ("x", long, 2), *(("x", rows, 1) for rows in more)]
    assert [remembered(*each, make) for each in known] == [[2], [3], [4], [5], [6]]
    monkeypatch.setattr(packed_rows, "_code", lambda: "another")
    assert remembered("x", long, 1, make) == [7]
    assert len(calls) == 7


def test_of_short_rows_and_without_settings_nothing_is_remembered() -> None:
    make, _ = counted()
    long = (packed(ROW),)
    assert [remembered("x", (ROW,), 1, make) for _ in range(2)] == [[1], [2]]
    assert [remembered("x", long, None, make) for _ in range(2)] == [[3], [4]]
