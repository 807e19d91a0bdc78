"""A comparison of several tasks, task by task, and the mean over tasks that weighs them alike.

Figures of single tasks are shown beside the comparison of all items; they are not tested.
"""

from collections.abc import Iterable, Mapping

from assay.compare.table import TaskFigure, TaskLine
from assay.judge.averages import average, average_change
from assay.judge.intervals import score_interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores


def task_lines(parts: Mapping[str, str], scores: Mapping[str, ItemScores]) -> tuple[TaskLine, ...]:
    """A line for each task and one for their mean; `scores` by run, the control first.

    `parts` has the task of each item. Raises ScoreError where a run has no score on a task.
    """
    if not parts:
        return ()
    control = next(iter(scores))
    tables = {
        task: {run: _of_task(each, parts, task) for run, each in scores.items()}
        for task in dict.fromkeys(parts.values())
    }
    lines = [_line(task, table, control) for task, table in tables.items()]
    return (*lines, _mean(list(tables.values()), control))


def _of_task(scores: ItemScores, parts: Mapping[str, str], task: str) -> ItemScores:
    kept = [i for i, item in enumerate(scores.item_ids) if parts[item] == task]
    clusters = scores.clusters
    return ItemScores(
        tuple(scores.item_ids[i] for i in kept),
        scores.scores[kept],
        None if clusters is None else tuple(clusters[i] for i in kept),
        scores.bounds,
    )


def _line(task: str, table: Mapping[str, ItemScores], control: str) -> TaskLine:
    figures = []
    for run, scores in table.items():
        found = None if run == control else compare(table[control], scores)
        figures.append(
            TaskFigure(
                run,
                scores.mean,
                score_interval(scores),
                None if found is None else found.difference,
                None if found is None else found.interval,
            )
        )
    return TaskLine(task, len(table[control].item_ids), tuple(figures))


def _mean(tables: Iterable[Mapping[str, ItemScores]], control: str) -> TaskLine:
    """The mean over tasks: errors of tasks are independent, so that only items vary."""
    tables = list(tables)
    figures = []
    for run in tables[0]:
        mean = average([[table[run]] for table in tables])
        pairs = [([table[control]], [table[run]]) for table in tables]
        change = None if run == control else average_change(pairs)
        figures.append(
            TaskFigure(
                run,
                mean.mean,
                mean.interval,
                None if change is None else change.mean,
                None if change is None else change.interval,
            )
        )
    items = sum(len(table[control].item_ids) for table in tables)
    return TaskLine("", items, tuple(figures))
