"""A folder that one run of lm-evaluation-harness wrote: all its tasks as one result.

An item is a document of a task, so that the mean over all items is what lm-eval calls a group's
score with `weight_by_size`. Tasks that have no such metric are named as left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.raw_record import DataError
from assay.data.results.foreign_result import Result

PATTERN = "samples_*.jsonl"
TASK = "task"
"""The key that makes each task one cluster."""


def sample_logs(folder: Path) -> list[Path]:
    """The sample logs of a folder, or of the folders in it, which lm-eval names after models."""
    if not folder.is_dir():
        return []
    return sorted(folder.glob(PATTERN)) or sorted(folder.glob(f"*/{PATTERN}"))


def read_folder(
    folder: Path, read: Callable[[Path, str | None], list[Result]], cluster: str | None
) -> list[Result]:
    """One result for each folder of logs and each metric, by the reader of one log.

    Raises DataError, also where a task has been logged twice.
    """
    by_run: dict[Path, list[Result]] = {}
    for file in sample_logs(folder):
        found = read(file, None if cluster == TASK else cluster)
        by_run.setdefault(file.parent, []).extend(found)
    return [
        _together(place, metric, results, cluster == TASK)
        for place, results in by_run.items()
        for metric in dict.fromkeys(result.metric for result in results)
    ]


def _together(folder: Path, metric: str, results: Sequence[Result], by_task: bool) -> Result:
    """The results of a folder by one metric as one."""
    tasks: dict[str, Result] = {}
    for result in results:
        if result.metric != metric:
            continue
        if result.benchmark in tasks:
            fix = "keep one of the two in the folder, or name the files"
            problem = f"task {result.benchmark!r} is logged twice"
            raise DataError(problem, file=result.file, fix=fix)
        tasks[result.benchmark] = result
    every = dict.fromkeys(result.benchmark for result in results)
    first = next(iter(tasks.values()))
    parts = {f"{t}/{a.item}": t for t, r in tasks.items() for a in r.answers}
    return replace(
        first,
        file=str(folder),
        answers=tuple(
            replace(a, item=f"{t}/{a.item}") for t, r in tasks.items() for a in r.answers
        ),
        benchmark=", ".join(tasks),
        settings=_settings(tasks.values()),
        configured=all(result.configured for result in tasks.values()),
        questions=_named(tasks, lambda result: result.questions),
        clusters=parts if by_task else _named(tasks, lambda result: result.clusters),
        left_out=tuple(task for task in every if task not in tasks),
        unfinished="; ".join(f"{t}: {r.unfinished}" for t, r in tasks.items() if r.unfinished),
        parts=parts if len(tasks) > 1 else {},
    )


def _named(
    tasks: Mapping[str, Result], get: Callable[[Result], Mapping[str, str]]
) -> dict[str, str]:
    return {f"{t}/{item}": value for t, r in tasks.items() for item, value in get(r).items()}


def _settings(results: Iterable[Result]) -> dict[str, Any]:
    """The settings of all tasks; what is not of one task is the same in all."""
    settings: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    for result in results:
        settings |= result.settings
        evaluation |= result.settings.get("evaluation", {})
    return {**settings, "evaluation": evaluation}
