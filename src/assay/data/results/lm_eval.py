"""Reads lm-evaluation-harness: a task's `samples_TASK_DATE.jsonl`, or the runs in a folder.

Settings come from the `results_DATE.json` of the same run. Each metric is a result by the name that
lm-eval prints, such as `exact_match,strict-match`. The logs of one run in a folder are one result:
an item is a document of a task, so the mean over items is lm-eval's group score with
`weight_by_size`; tasks without the metric are named as left out. A log may be one array, `.json`.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from assay.data.files import canonical_json, sha256_text
from assay.data.loaded import ABSENT, DataError, Record
from assay.data.results.foreign_result import (
    Contradiction,
    RecordLine,
    Result,
    arguments,
    comparable,
    differ,
    fingerprint,
    is_score,
    kind_of_device,
    load_bytes,
    model_arguments,
    number,
    read_objects,
    results_of,
)

KEYS = frozenset({"doc_id", "doc", "resps", "filtered_resps"})
COLUMNS = KEYS | {"target", "arguments", "filter", "metrics", "doc_hash", "prompt_hash"}
COLUMNS |= {"target_hash"}
NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(\.\d+)?)\.jsonl?")
RENDERING = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")
TABLES = ("configs", "results", "versions", "n-shot", "n-samples", "higher_is_better")
TABLES += ("task_hashes",)
"""What the log has of each task."""
TEXTS = ("chat_template", "system_instruction")
AVERAGED = ("acc", "acc_norm", "acc_mutual_info", "acc_bytes", "exact_match")
"""Metrics that lm-eval averages where a task does not say how."""
HASHED = ("doc_hash", "prompt_hash", "target_hash")
"""What `task_hashes` has of each row, joined."""
UNMEASURED = "no metric is a number for every question"
PERPLEXITY = "name logs of tasks that score each question; a perplexity is one number of all"
CHECKSUMS = ("model_revision", "model_sha", "peft_sha", "delta_sha")


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each metric and filter; `cluster` is a key of the documents.

    Raises DataError, where there is none too.
    """
    results = read_task(path, cluster)
    if not results:
        raise DataError(UNMEASURED, file=path, fix=PERPLEXITY)
    return results


def read_task(path: Path, cluster: str | None = None) -> list[Result]:
    """The same, none where no metric has a number for every document. Raises DataError."""
    task, _ = _task_and_date(path)
    file, log = _results_file(path, task)
    by_filter: dict[str, list[Record]] = {}
    for record in read_objects(path):
        by_filter.setdefault(_filter(record), []).append(record)
    groups = [*by_filter.values()]
    results = [result for rows in groups for result in _results(path, log, rows, cluster)]
    contradictions = tuple(_sums(file, log, [*chain.from_iterable(groups)], results))
    return [replace(result, contradictions=contradictions) for result in results]


def _filter(record: Record) -> str:
    return record.maybe("filter", str) or "none"


def _sums(
    file: str, log: Mapping[str, Any], rows: Sequence[Record], results: Sequence[Result]
) -> Iterator[Contradiction]:
    """Means of the task, and a hash of its rows, that these do not have. A metric that is no mean
    over documents is not looked at."""
    summary, stated = log.get("results") or {}, log.get("task_hashes")
    listed = (log.get("configs") or {}).get("metric_list") or ()
    ways = {each.get("metric"): each.get("aggregation") for each in listed}
    for result in results:
        key, metric = f"{result.metric},none", result.metric
        if key not in summary and "," in metric:  # with the filter of the answers behind it
            key, metric = metric, metric.rpartition(",")[0]
        way = ways.get(metric) or ("mean" if metric in AVERAGED else "")
        known = [answer.score for answer in result.answers if answer.score is not None]
        whole = len(known) == len(result.answers)
        if known and (way == "nanmean" or (way == "mean" and whole)):
            counted = math.fsum(known) / len(known)
            if differ(summary.get(key), counted):
                field = f"results.{result.benchmark}.{key}"
                yield Contradiction(file, field, summary[key], counted)
    if results and stated is not None and all(row.value.keys() >= {*HASHED} for row in rows):
        counted = sha256_text("".join(str(row.value[key]) for row in rows for key in HASHED))
        if stated != counted:
            yield Contradiction(file, f"task_hashes.{results[0].benchmark}", stated, counted)


def _requests(line: Record) -> list[Sequence[Any]]:
    """The requests of a document, each a text and what belongs to it."""
    arguments = line.value.get("arguments") or ()
    every = arguments.values() if isinstance(arguments, dict) else arguments
    return [[*each.values()] if isinstance(each, dict) else each for each in every]


def _task_and_date(path: Path) -> tuple[str, str]:
    match = NAME.fullmatch(path.name)
    return (match["task"], match["date"]) if match else ("", "")


def _results(
    path: Path, log: Mapping[str, Any], rows: Sequence[Record], cluster: str | None
) -> list[Result]:
    """The results of one filter."""
    task, filter_ = _task_and_date(path)[0], _filter(rows[0])
    effective = (log.get("n-samples") or {}).get("effective", len(rows))
    named = rows[0].maybe("metrics", list) or [n for n in rows[0].value if n not in COLUMNS]
    # Perplexities have parts and are no number of a document.
    metrics = {
        m if filter_ == "none" else f"{m},{filter_}": m
        for m in named
        if all(is_score(row.value.get(m)) for row in rows)
    }
    lines = []
    for row in rows:
        scores = {name: number(row, m, row.value.get(m, ABSENT)) for name, m in metrics.items()}
        item, doc = str(row.need("doc_id", int, str)), row.maybe("doc", dict)
        question = row.maybe("doc_hash", str) or fingerprint(row.need("doc", dict))
        lines.append(RecordLine(row, item, scores, 0, _text(row), "", doc, question))
    model = log.get("model_name") or (log.get("config") or {}).get("model")
    run = Result(
        run=model or path.absolute().parent.name,
        file=str(path),
        format="lm-eval",
        benchmark=task,
        checker="lm-evaluation-harness",
        settings=_settings(log, task, rows),
        configured=bool(log),
        reads_answers=not (log.get("configs") or {}).get("unsafe_code"),
        unfinished="" if effective == len(rows) else f"{len(rows)} of {effective} questions",
    )
    better = log.get("higher_is_better") or {}
    fix = "a document stands once for each filter"
    return [
        replace(each, higher_is_better=better.get(metrics[each.metric]))
        for each in results_of(run, lines, metrics, cluster, "doc_id", fix)
    ]


def _text(line: Record) -> str | None:
    """What the model wrote, before any filter; requests that only score given choices write none.

    A document has one list of responses for each request, with one text for each repeat of it.
    """
    requests = line.need("resps", list)
    texts = [t for each in requests for t in (each if isinstance(each, list) else [each])]
    return "\n".join(texts) if texts and all(isinstance(text, str) for text in texts) else None


def _results_file(path: Path, task: str) -> tuple[str, Mapping[str, Any]]:
    """What the same run wrote about itself and one of its tasks, and where; empty where the file
    was moved away."""
    _, date = _task_and_date(path)
    near = sorted(path.parent.glob(f"*_{date}.json")) if date else []
    files = [file for file in near if not NAME.fullmatch(file.name)]
    if not files:
        return "", {}
    log = load_bytes(files[0].read_bytes(), files[0])
    if not isinstance(log, dict) or not isinstance(log.get("configs"), dict):
        raise DataError("is no results file of lm-eval", file=files[0], field="configs")
    return str(files[0]), log | {key: (log.get(key) or {}).get(task) for key in TABLES}


def _settings(log: Mapping[str, Any], task: str, lines: Sequence[Record]) -> dict[str, Any]:
    """What the logs carry, in the parts of a manifest."""
    evaluation: dict[str, Any] = {"prompts_sha256": _prompts(lines)}
    settings: dict[str, Any] = {"evaluation": {task: evaluation}}
    if not log:
        return settings
    # Turns are told apart in a chat template alone.
    rendering = RENDERING if log.get("chat_template_sha") else RENDERING[:2]
    shas = {f"{n}_sha": sha256_text(log[n]) for n in TEXTS if isinstance(log.get(n) or None, str)}
    config, about = log.get("config") or {}, comparable(log["configs"] or {})
    model = model_arguments(config.get("model_args"), log.get("model_name"))
    evaluation |= {
        "task": {key: about[key] for key in about if _is_task(key)},
        "version": log["versions"],
        "examples": log["n-shot"],
        "sampling": _sampling(about, config, lines),
        "rendering": {key: {**log, **shas}.get(key) or None for key in rendering},
    }
    packages = {"lm_eval": "lm_eval_version", "transformers": "transformers_version"}
    computed = {
        "device": model.device or kind_of_device(config.get("device")),
        "dtype": comparable(config.get("model_dtype")),
    }
    checksums = {key: config[key] for key in CHECKSUMS if config.get(key)}
    return settings | {
        "base_weights": {**model.identity, **checksums},
        "model_args": dict(model.answers),
        "engine": {"name": config.get("model"), "max_length": log.get("max_length")},
        "packages": {name: log.get(key) for name, key in packages.items()},
        "machine": {
            **model.transport,
            "batch_size": config.get("batch_size"),
            **{name: value for name, value in computed.items() if value},
        },
        "random_seeds": {key: config[key] for key in config if key.endswith("_seed")},
        "dataset": {
            "limit": config.get("limit"),
            task: {key: about[key] for key in about if _is_source(key)},
        },
    }


def _sampling(
    about: Mapping[str, Any], config: Mapping[str, Any], lines: Sequence[Record]
) -> dict[str, Any]:
    """The settings of generation: what the task and the command line ask for, and the values in
    the rows in place of those that the rows have otherwise."""
    stated = {"repeats": about.get("repeats", 1)} | (about.get("generation_kwargs") or {})
    stated |= arguments(config.get("gen_kwargs"))
    used: dict[str, list[Any]] = {key: [] for key in stated}
    for line in lines if about.get("output_type") == "generate_until" else ():
        drawn = next(iter(line.need("resps", list)), None)
        options: dict[str, Any] = {"repeats": len(drawn) if isinstance(drawn, list) else 1}
        for request in _requests(line):
            options |= request[1] if len(request) > 1 and isinstance(request[1], dict) else {}
        for key in options.keys() & stated.keys():
            if not _same(options[key], stated[key]) and options[key] not in used[key]:
                used[key].append(comparable(options[key]))
    return {key: used[key] or value for key, value in stated.items()}


def _same(used: Any, stated: Any) -> bool:
    """Whether a setting was used as it is stated; a model may add endings of its own."""
    lists = [each if isinstance(each, list) else [each] for each in (used, stated)]
    return all(each in lists[0] for each in lists[1])


def _prompts(lines: Sequence[Record]) -> str:
    """A fingerprint of the texts that were asked, as far as the log has them: `prompt_hash`, else
    the first request's text."""
    hashes = []
    for line in lines:
        text = next(iter(next(iter(_requests(line)), ())), None)
        hashes.append(str(line.value.get("prompt_hash") or sha256_text(str(text))))
    return sha256_text(canonical_json(sorted(hashes)))


def _is_source(key: str) -> bool:
    """Whether a key of a task says where its documents lie; what they ask is compared itself."""
    source = key.startswith("dataset_") or key in ("process_docs", "custom_dataset")
    return source or (key.endswith("_split") and key != "fewshot_split")


def _is_task(key: str) -> bool:
    """Whether a key of a task says what is asked and how it is scored. `metadata` holds the
    model's arguments again."""
    elsewhere = ("metadata", "generation_kwargs", "repeats", "num_fewshot")
    return key not in elsewhere and not _is_source(key)


def sample_logs(folder: Path) -> list[Path]:
    """The sample logs of a folder, or of the folders in it, which lm-eval names after models."""
    if not folder.is_dir():
        return []
    here, below = (
        sorted(f for f in folder.glob(f"{prefix}samples_*") if f.suffix in (".json", ".jsonl"))
        for prefix in ("", "*/")
    )
    return here or below


def read_folder(folder: Path, cluster: str | None) -> list[Result]:
    """One result for each run in a folder and each metric; tasks without a metric, such as
    perplexities, are named as left out beside those that have one.

    Raises DataError.
    """
    logs = {file: read_task(file, cluster) for file in sample_logs(folder)}
    if not any(logs.values()):
        raise DataError(UNMEASURED, file=folder, fix=PERPLEXITY)
    task_runs = _runs([each for log in logs.values() for each in log])
    bare: dict[str, list[str]] = {}
    for file in (file for file, results in logs.items() if not results):
        bare.setdefault(str(file.parent), []).append(_task_and_date(file)[0] or file.name)
    return [replace(r, left_out=(*r.left_out, *bare.get(r.file, ()))) for r in task_runs]


def _runs(results: Sequence[Result]) -> list[Result]:
    """The results of single logs, those of one run and metric as one.

    The logs of one date and model are one run, named with the date where the model has several.
    """
    runs: dict[tuple[Path, str, str, str], list[Result]] = {}
    for result in results:
        file = Path(result.file)
        model = [result.settings.get(part) for part in ("base_weights", "model_args", "engine")]
        key = (file.parent, _task_and_date(file)[1], result.run, fingerprint(model))
        runs.setdefault(key, []).append(result)
    alike = Counter((folder, run) for folder, _, run, _ in runs)
    made = []
    for (folder, date, run, _), those in sorted(runs.items()):
        name = run if alike[folder, run] == 1 else f"{run}/{date}"
        metrics = dict.fromkeys(result.metric for result in those)
        made += [replace(_together(folder, metric, those), run=name) for metric in metrics]
    return made


def _together(folder: Path, metric: str, results: Sequence[Result]) -> Result:
    """The results of one run by one metric as one."""
    tasks = {result.benchmark: result for result in results if result.metric == metric}
    every = dict.fromkeys(result.benchmark for result in results)
    first = next(iter(tasks.values()))
    directions = {result.higher_is_better for result in tasks.values()} - {None}

    def named(get: Callable[[Result], Mapping[str, str]]) -> dict[str, str]:
        return {f"{t}/{item}": value for t, r in tasks.items() for item, value in get(r).items()}

    # What is not of one task is the same in all.
    settings = {
        part: {key: each for r in tasks.values() for key, each in r.settings.get(part, {}).items()}
        for part in ("evaluation", "dataset")
        if part in first.settings
    }
    return replace(
        first,
        file=str(folder),
        answers=tuple(
            replace(a, item=f"{t}/{a.item}") for t, r in tasks.items() for a in r.answers
        ),
        benchmark=", ".join(tasks),
        settings={**first.settings, **settings},
        configured=all(result.configured for result in tasks.values()),
        questions=named(lambda result: result.questions),
        clusters=named(lambda result: result.clusters),
        left_out=tuple(task for task in every if task not in tasks),
        reads_answers=all(result.reads_answers for result in tasks.values()),
        contradictions=(*{repr(c): c for r in tasks.values() for c in r.contradictions}.values(),),
        unfinished="; ".join(f"{t}: {r.unfinished}" for t, r in tasks.items() if r.unfinished),
        higher_is_better=directions.pop() if len(directions) == 1 else None,
    )
