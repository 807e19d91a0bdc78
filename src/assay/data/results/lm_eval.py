"""Reads lm-evaluation-harness: a task's `samples_TASK_DATE.jsonl`, or a folder as one result.

Settings come from the `results_DATE.json` of the same run. Each metric is a result by the name that
lm-eval prints, such as `exact_match,strict-match`. In a folder an item is a document of a task, so
the mean over items is lm-eval's group score with `weight_by_size`; tasks without the metric are
named as left out.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.hashing import canonical_json, sha256_text
from assay.data.json_files import load_json, read_jsonl
from assay.data.loaded import DataError, Record
from assay.data.results.foreign_result import (
    Answer,
    Clusters,
    Places,
    Result,
    is_score,
    read_text,
    score,
)

KEYS = frozenset({"doc_id", "doc", "resps", "filtered_resps"})
COLUMNS = KEYS | {"target", "arguments", "filter", "metrics", "doc_hash", "prompt_hash"}
COLUMNS |= {"target_hash"}
RENDERING = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")
NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(\.\d+)?)\.jsonl")


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each metric and filter; `cluster` is a key of the documents.

    Raises DataError.
    """
    records = list(read_jsonl(path))
    by_filter: dict[str, list[Record]] = {}
    for record in records:
        by_filter.setdefault(record.maybe("filter", str) or "none", []).append(record)
    results = []
    log = _results_file(path)
    for name, lines in by_filter.items():
        for metric in _metrics(path, log, lines):
            results.append(_result(path, log, name, metric, lines, cluster))
    if not results:
        problem = "no metric is a number for every question, of which higher is better"
        raise DataError(problem, file=path)
    return results


def _metrics(path: Path, log: Mapping[str, Any], lines: Sequence[Record]) -> list[str]:
    """The metrics with a number for every document; perplexities have parts and are not among them.

    Metrics that lm-eval marks as lower-is-better are left out, because verdicts take higher as
    better.
    """
    first = lines[0]
    named = first.maybe("metrics", list) or [n for n in first.value if n not in COLUMNS]
    better = (log.get("higher_is_better") or {}).get(_task_name(path)) or {}
    return [
        name
        for name in named
        if better.get(name) is not False and all(is_score(line.value.get(name)) for line in lines)
    ]


def _task_name(path: Path) -> str:
    found = NAME.fullmatch(path.name)
    return found["task"] if found else ""


def _result(
    path: Path,
    log: Mapping[str, Any],
    filter_: str,
    metric: str,
    lines: Sequence[Record],
    cluster: str | None,
) -> Result:
    name = metric if filter_ == "none" else f"{metric},{filter_}"
    task = _task_name(path)
    places, sources, answers = Places(), Clusters(cluster), []
    for line in lines:
        item = str(line.need("doc_id", int, str))
        places.take(line, "doc_id", item, fix="a document stands once for each filter")
        sources.take(line, item, line.maybe("doc", dict))
        answers.append(Answer(item, 0, score(line, metric), _text(line)))
    return Result(
        run=_model(log) or path.parent.name,
        file=str(path),
        format="lm-eval",
        metric=name,
        answers=tuple(answers),
        benchmark=task,
        checker=f"lm-evaluation-harness {name}",
        settings=_settings(log, task, lines),
        configured=bool(log),
        questions={str(line.value["doc_id"]): _question(line) for line in lines},
        clusters=sources.by_item,
        unfinished=_unfinished(log, task, len(lines)),
    )


def _text(line: Record) -> str | None:
    """What the model wrote, before any filter; requests that only score given choices write none.

    A document has one list of responses for each request, with one text for each repeat of it.
    """
    texts = [text for request in line.need("resps", list) for text in _listed(request)]
    return "\n".join(texts) if texts and all(isinstance(text, str) for text in texts) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _question(line: Record) -> str:
    return line.maybe("doc_hash", str) or sha256_text(canonical_json(line.need("doc", dict)))


def _results_file(path: Path) -> Mapping[str, Any]:
    """What the same run wrote about itself; empty where the file was moved away from it."""
    found = NAME.fullmatch(path.name)
    files = sorted(path.parent.glob(f"*_{found['date']}.json")) if found else []
    if not files:
        return {}
    try:
        log = load_json(read_text(files[0]))
    except ValueError as error:
        raise DataError(f"malformed JSON: {error}", file=files[0]) from error
    if not isinstance(log, dict) or not isinstance(log.get("configs"), dict):
        raise DataError("is no results file of lm-eval", file=files[0], field="configs")
    return log


def _model(log: Mapping[str, Any]) -> str:
    return log.get("model_name") or (log.get("config") or {}).get("model") or ""


def _unfinished(log: Mapping[str, Any], task: str, count: int) -> str:
    asked = (log.get("n-samples") or {}).get(task, {}).get("effective", count)
    return "" if count == asked else f"{count} of {asked} questions"


def _settings(log: Mapping[str, Any], task: str, lines: Sequence[Record]) -> dict[str, Any]:
    """What the logs carry, in the parts of a manifest."""
    prompts = sorted(str(line.value.get("prompt_hash")) for line in lines)
    evaluation: dict[str, Any] = {"prompts_sha256": sha256_text(canonical_json(prompts))}
    settings: dict[str, Any] = {"evaluation": {task: evaluation}}
    if not log:
        return settings
    config = log.get("config") or {}
    evaluation |= {
        "task": _task(log["configs"].get(task) or {}),
        "version": (log.get("versions") or {}).get(task),
        "examples": (log.get("n-shot") or {}).get(task),
        "limit": config.get("limit"),
        "sampling": {"gen_kwargs": config.get("gen_kwargs")}
        | {key: config[key] for key in config if key.endswith("_seed")},
        "rendering": {key: log.get(key) for key in RENDERING},
    }
    packages = {"lm_eval": "lm_eval_version", "transformers": "transformers_version"}
    return settings | {
        "base_weights": {key: config.get(key) for key in ("model", "model_args")},
        "packages": {name: log.get(key) for name, key in packages.items()},
        "machine": {key: config.get(key) for key in ("batch_size", "device")},
    }


def _task(config: Mapping[str, Any]) -> dict[str, Any]:
    """The task's own table; lm-eval adds the model's arguments to its metadata."""
    return {key: value for key, value in config.items() if key != "metadata"}


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
        settings=_common_settings(tasks.values()),
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


def _common_settings(results: Iterable[Result]) -> dict[str, Any]:
    """The settings of all tasks; what is not of one task is the same in all."""
    settings: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    for result in results:
        settings |= result.settings
        evaluation |= result.settings.get("evaluation", {})
    return {**settings, "evaluation": evaluation}
