"""Sample logs of lm-evaluation-harness: `samples_TASK_DATE.jsonl`, written with `--log_samples`.

The settings are read from `results_DATE.json` beside it, which the same run wrote. Each metric of
the task is a result of its own, by the name that lm-eval prints: `exact_match,strict-match`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.hashing import canonical_json, sha256_text
from assay.data.jsonl import load_json, read_jsonl
from assay.data.raw_record import DataError, Record
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
    """The metrics with a number for every document; perplexities are kept in parts and are none.

    Verdicts take more for better, so that metrics of which lm-eval says the contrary are left out.
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
