"""Turns rows, functions and classes of a notebook into files of the lab, and records into frames.

An experiment of values may hold them where a file names a path: the `source` of a data set, `task`,
and the `reward` of stages and evaluations. What runs is the experiment that names the files, so
that a shell goes on with it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from inspect import isgeneratorfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.experiment.read_file import ExperimentSource
from assay.library.stored_code import module_text
from assay.runs.run_code import store_text
from assay.tasks.user_code import SCHEME

if TYPE_CHECKING:  # an extra, without which records are read all the same
    from pandas import DataFrame

Rows = Any
"""A list of dicts, a `datasets.Dataset` or a `pandas.DataFrame`."""
LAYOUTS: Sequence[tuple[frozenset[str], str]] = (
    (frozenset({"chosen", "rejected"}), "preference"),
    (frozenset({"messages"}), "messages"),
    (frozenset({"prompt", "answer"}), "prompt_answer"),
    (frozenset({"prompt"}), "trl"),
    (frozenset({"question", "answer"}), "gsm8k"),
    (frozenset({"instruction", "output"}), "alpaca"),
)
"""The columns that show a format; the first that fits is taken."""


def stored(spec: ExperimentSource, root: Path) -> Any:
    """The experiment, of values one with what is alive in it as files of the lab. Raises
    InputError."""
    if not isinstance(spec, Mapping):
        return spec
    values = dict(spec)
    if not isinstance(values.get("task", ""), str):
        values["task"] = _task(values["task"], root)
    for name, table in _tables(values, "data"):
        if not isinstance(table.get("source", ""), str):
            table |= _rows(table["source"], root, name, table)
    for table in (t for kind in ("stage", "evaluate") for _, t in _tables(values, kind)):
        if "reward" in table:
            table["reward"] = _reward(table["reward"], root)
    return values


def _tables(values: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The tables of a kind by name, copied so that they may be changed."""
    tables = values.get(kind)
    if not isinstance(tables, Mapping):
        return []
    values[kind] = {n: dict(t) if isinstance(t, Mapping) else t for n, t in tables.items()}
    return [(name, table) for name, table in values[kind].items() if isinstance(table, dict)]


def _rows(rows: Rows, root: Path, name: str, table: Mapping[str, Any]) -> dict[str, str]:
    """`source` and `format` of rows that are stored. Raises InputError."""
    field = f"data.{name}.source"
    listed = records(rows, field)
    lines = []
    for number, row in enumerate(listed, 1):
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            problem = f"row {number} is no JSON: {error}"
            raise InputError(
                problem, field=field, fix="write texts, numbers, lists, dicts"
            ) from None
    renamed = {theirs: ours for ours, theirs in table.get("columns", {}).items()}
    columns = {renamed.get(column, column) for column in listed[0]}
    known = next((format for needs, format in LAYOUTS if needs <= columns), None)
    if known is None and "format" not in table:
        fix = "name one prompt (and one answer) or messages, or set format"
        raise InputError(
            f"no format has columns {', '.join(map(str, listed[0]))}", field=field, fix=fix
        )
    path = store_text(root, name, "".join(f"{line}\n" for line in lines), ".jsonl")
    return {"source": SCHEME + path, "format": str(table.get("format", known))}


def records(rows: Rows, field: str) -> list[dict[str, Any]]:
    """Rows as dicts; what a frame has no value for is None. Raises InputError."""
    if hasattr(rows, "to_list") and hasattr(rows, "column_names"):
        rows = rows.to_list()
    elif hasattr(rows, "to_dict") and hasattr(rows, "notna"):
        rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
    rows = list(rows) if isinstance(rows, Iterable) else [rows]
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        problem = f"is {type(rows[0]).__name__} and no row" if rows else "holds no rows"
        fix = "hand in a list of dicts, a datasets.Dataset or a DataFrame"
        raise InputError(problem, field=field, fix=fix)
    return rows


def _task(task: Any, root: Path) -> str:
    """`path:FILE` of a task: a class or an instance, or a generator function of turns."""
    if isgeneratorfunction(task):
        name = task.__name__
        made = f"from assay.tasks.turns import TurnsTask\n\nTASK = TurnsTask({name})\n"
        text = f"{module_text(name, task)}\n{made}"
    else:
        name = getattr(task, "__name__", type(task).__name__)
        text = module_text("TASK", task)
    return SCHEME + store_text(root, name, text, ".py")


def _reward(reward: Any, root: Path) -> Any:
    """The reward with `path:FILE.py:NAME` in the place of functions; of a list, their sum."""
    if isinstance(reward, list | tuple):
        parts = [(label(each), _reward(each, root)) for each in reward]
        if len(dict(parts)) < len(parts):
            problem = "two rewards have one name: " + ", ".join(name for name, _ in parts)
            raise InputError(problem, field="reward", fix="name their functions differently")
        return {name: {"kind": each} for name, each in parts}
    if isinstance(reward, Mapping):
        tables = {name: part for name, part in reward.items() if isinstance(part, Mapping)}
        return {
            **reward,
            **{n: {**p, "kind": _reward(p.get("kind", n), root)} for n, p in tables.items()},
        }
    if not callable(reward):
        return reward
    name = label(reward)
    return f"{SCHEME}{store_text(root, name, module_text(name, reward), '.py')}:{name}"


def label(value: Any) -> str:
    """The name of a function, or of a reward that is named; `reward` for one without."""
    name = value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)
    name = name.rpartition(":")[2].rpartition(".")[2]
    return name if name.isidentifier() and not name.startswith("_") else "reward"


def frame(rows: Iterable[Any]) -> "DataFrame":
    """Mappings or dataclasses as a data frame. Raises InputError without pandas."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise InputError("pandas is not installed", fix="pip install pandas") from None
    return DataFrame([asdict(row) if is_dataclass(row) else dict(row) for row in rows])  # type: ignore[arg-type]
