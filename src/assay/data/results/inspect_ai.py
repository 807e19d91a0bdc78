"""Reads logs of inspect-ai, JSON or `.eval` (a zip of JSON files); each scorer is a result.

Letters count as in inspect-ai's `value_to_float`; samples that ended in an error have no score.
Epochs are repeats, whose mean the judge takes; what a log reduced otherwise is named as left out. A
scorer of words or lists is no metric and is named. Of the events only the settings of the model's
calls are read; tool calls and conversations are not.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.data.loaded import DataError, Record
from assay.data.results.foreign_result import (
    Contradiction,
    RecordLine,
    Result,
    as_number,
    comparable,
    differ,
    fingerprint,
    is_score,
    load_bytes,
    model_arguments,
    read_members,
    results_of,
)

MEAN = "mean"
AVERAGES = ("accuracy", MEAN)
"""Metrics of inspect-ai that are the mean of the samples' values."""
OF_ANSWERS = ("match", "includes", "pattern", "answer", "exact", "f", "math")
"""Scorers of inspect-ai that read the last answer alone, without the numbers in their names."""
SCORING = ("scorer", "scorers")
"""Types of the events that begin the scoring of a sample, whose calls are the judge's."""


def _reducers(header: Mapping[str, Any]) -> list[str]:
    """The names of what the log asked for, `mean` where it asked for nothing."""
    config = header["eval"].get("config") or {}
    return [str(name) for name in config.get("epochs_reducer") or [MEAN]]


KEYS = frozenset({"version", "status", "eval", "plan"})
NUMBERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
ATTACHED = "attachment://"
EVALUATION = ("task", "task_version", "task_args", "solver", "solver_args", "sandbox")
EVALUATION += ("model_roles",)
TRANSPORT = ("max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout")
TRANSPORT += ("stream_idle_timeout", "batch", "cache", "cache_prompt")
"""Options of generation that say how a model is reached, not what it is asked."""
ENGINES = ("hf", "vllm", "sglang", "llama-cpp-python", "ollama", "transformer_lens", "nnterp")
"""Providers that run a model here, so that one model can run in several of them."""
HEADERS = ("header.json", "_journal/start.json")
"""Where a zipped log says what it is about: at its end, and at its beginning."""
LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "turn_limit")
LIMITS += ("cost_limit", "token_limit_type")
CHOSEN = ("limit", "sample_id", "sample_shuffle")
"""Options that choose samples, which are compared themselves."""


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each scorer, and for each part of a score that has parts.

    `cluster` is a key of the samples' metadata. Raises DataError.
    """
    header, samples = _log(path)
    lines = [_line(sample) for sample in samples]
    metrics = dict.fromkeys(name for line in lines for name in line.scores)
    if not metrics:
        status = str(header.get("status", "started"))
        if samples or status != "success":
            raise DataError("no sample has a score", file=path, fix=f"its status is {status}")
        fix = "run the evaluation with --log-samples"
        raise DataError("holds no samples", file=path, fix=fix)
    whole = [name for name in metrics if all(is_score(line.scores.get(name)) for line in lines)]
    others = [name for name in _reducers(header) if name != MEAN]
    run = Result(
        run=str(header["eval"].get("model", "")),
        file=str(path),
        format="inspect-ai",
        benchmark=str(header["eval"].get("task", "")),
        checker="inspect-ai",
        configured=True,
        left_out=(*(name for name in metrics if name not in whole), *others),
        unfinished=_unfinished(header, len(lines)),
    )
    fix = "one sample for each id and epoch"
    # Where no metric is one of numbers, the first of them is refused.
    results = results_of(run, lines, whole or metrics, cluster, "id", fix)
    contradictions = tuple(_contradictions(header, samples, results))
    values = [_parts(sample) for sample in samples]
    return [
        replace(
            each,
            settings=_settings(header, each.metric, samples),
            contradictions=contradictions,
            reads_answers=each.metric.partition(".")[0].rstrip("0123456789") in OF_ANSWERS,
            higher_is_better=any(part.get(each.metric) in ("C", "I") for part in values) or None,
        )
        for each in results
    ]


def _contradictions(
    header: Mapping[str, Any], samples: Sequence[Record], results: Sequence[Result]
) -> Iterator[Contradiction]:
    """Means of the header that the samples do not have, and samples that used another model."""
    spec, reducers, file = header["eval"], _reducers(header), results[0].file
    rows: dict[str, dict[str, list[float]]] = {}
    for result in results:
        for item, score in ((a.item, a.score) for a in result.answers if a.score is not None):
            rows.setdefault(result.metric, {}).setdefault(item, []).append(score)
    own = {*_metric_names([spec.get("metrics"), spec.get("scorers")])}
    for score in (header.get("results") or {}).get("scores") or ():
        name, scorer = score.get("name"), score.get("scorer")
        label = name if scorer in (None, name) else f"{scorer}.{name}"
        reducer = score.get("reducer") or (reducers[0] if len(reducers) == 1 else MEAN)
        items = rows.get(label, {}) if reducer == MEAN else {}
        # Without a reducer a metric is of the items' means, or of every epoch.
        ways = [*map(fmean, items.values())], [each for of in items.values() for each in of]
        for key, metric in (score.get("metrics") or {}).items() if items else ():
            options = metric.get("params") or metric.get("options")
            # A metric of inspect-ai has its name before its own in what the log asked for.
            if metric.get("name", key) not in AVERAGES or options or key in own:
                continue
            if all(differ(metric.get("value"), fmean(each)) for each in ways):
                yield Contradiction(file, f"results.{label}.{key}", metric["value"], fmean(ways[0]))
    model, stated = spec.get("model"), (header.get("stats") or {}).get("model_usage")
    used = {name for sample in samples for name in sample.maybe("model_usage", dict) or ()}
    if used and model in (stated or ()) and model not in used:
        yield Contradiction(file, "eval.model", model, ", ".join(sorted(used)))


def _metric_names(node: Any) -> Iterator[str]:
    """The names in lists of metrics, in tables of them, and in scorers that have some."""
    if isinstance(node, Mapping) and "metrics" not in node and isinstance(node.get("name"), str):
        yield node["name"]
    elif isinstance(node, Mapping | list):
        for each in node.values() if isinstance(node, Mapping) else node:
            yield from _metric_names(each)


def _line(sample: Record) -> RecordLine:
    item, repeat = str(sample.need("id", int, str)), sample.need("epoch", int) - 1
    error = str((sample.maybe("error", dict) or {}).get("message", ""))
    scores = {name: as_number(value, NUMBERS) for name, value in _parts(sample).items()}
    table = sample.maybe("metadata", dict)
    question = fingerprint([sample.value.get(key) for key in ("input", "choices", "target")])
    return RecordLine(sample, item, scores, repeat, _text(sample), error, table, question)


def _parts(sample: Record) -> dict[str, Any]:
    """The scores of a sample by metric; a score that is a table is one metric for each key."""
    parts: dict[str, Any] = {}
    for name, score in (sample.maybe("scores", dict) or {}).items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            parts |= {f"{name}.{part}": each for part, each in value.items()}
        else:
            parts[name] = value
    return parts


def _text(sample: Record) -> str | None:
    """The model's last message, with its attachments put back."""
    output = sample.maybe("output", dict) or {}
    choices = output.get("choices") or []
    content = choices[0].get("message", {}).get("content") if choices else None
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    if not isinstance(content, str):
        return None
    attachments = sample.maybe("attachments", dict) or {}
    return attachments.get(content.removeprefix(ATTACHED), content)


def _unfinished(header: Mapping[str, Any], count: int) -> str:
    if (status := str(header.get("status", "started"))) != "success":
        return f"its status is {status}"
    total = (header.get("results") or {}).get("total_samples", count)
    return "" if count == total else f"{count} of {total} samples"


def _generation(
    spec: Mapping[str, Any], plan: Mapping[str, Any], samples: Sequence[Record]
) -> dict[str, Any]:
    """The settings that the model was called with: those that the events of all calls share, under
    `calls` those that they do not; without events the plan's over the model's, as `Model.generate`
    merges them (inspect-ai 0.3.285)."""
    stated = {
        key: value
        for config in (spec.get("model_generate_config"), plan.get("config"))
        for key, value in (config or {}).items()
        if value is not None
    }
    every_call = (call for sample in samples for call in _calls(sample, spec.get("model")))
    calls = [*{fingerprint(call): call for call in every_call}.values()]
    if not calls:
        return stated
    shared = {k: v for k, v in calls[0].items() if all(call.get(k) == v for call in calls)}
    apart = [{k: call[k] for k in call if k not in shared} for call in calls]
    elsewhere = {k: stated[k] for k in stated if k in (*TRANSPORT, "seed")}
    return elsewhere | shared | ({"calls": sorted(apart, key=fingerprint)} if any(apart) else {})


def _calls(sample: Record, model: Any) -> Iterator[dict[str, Any]]:
    """The settings of each call of the model before the sample was scored, without its seed and
    those of transport."""
    for event in sample.maybe("events", list) or ():
        if event.get("type") in SCORING:
            return
        if event.get("event") == "model" and event.get("model") == model and not event.get("role"):
            config = comparable(event.get("config") or {})
            yield {k: v for k, v in config.items() if k not in (*TRANSPORT, "seed")}


def _settings(header: Mapping[str, Any], metric: str, samples: Sequence[Record]) -> dict[str, Any]:
    spec, plan = comparable(header["eval"]), comparable(header.get("plan") or {})
    config = spec.get("config") or {}
    generate = _generation(spec, plan, samples)
    scorers = {each.get("name"): each.get("options") for each in spec.get("scorers") or ()}
    evaluation = {
        **{key: spec[key] for key in EVALUATION if spec.get(key) is not None},
        **{key: config[key] for key in LIMITS if config.get(key) is not None},
        "steps": [(s.get("solver"), s.get("params")) for s in plan.get("steps") or []],
        "scorer": scorers.get(metric.partition(".")[0]) or {},
        "sampling": {k: generate[k] for k in generate if k not in (*TRANSPORT, "seed")},
    }
    provider, _, name = str(spec.get("model", "")).partition("/")
    local = provider in ENGINES and name
    model = model_arguments(spec.get("model_args"), spec.get("model"))
    commit = (spec.get("revision") or {}).get("commit")
    settings = {
        "base_weights": {"model": name if local else spec.get("model"), **model.identity},
        "model_args": dict(model.answers),
        "evaluation": {str(spec.get("task", "")): evaluation},
        "machine": {
            **{key: generate[key] for key in generate if key in TRANSPORT},
            **model.transport,
            "base_url": spec.get("model_base_url"),
            **({"device": model.device} if model.device else {}),
        },
        "dataset": {**(spec.get("dataset") or {}), **{key: config.get(key) for key in CHOSEN}},
        "random_seeds": {"seed": generate.get("seed")},
        "packages": {**(spec.get("packages") or {}), **({"task": commit} if commit else {})},
        "time": {"created": spec.get("created")},
    }
    return settings | ({"engine": {"name": provider}} if local else {})


def _log(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """Header and samples; a zipped log that was cut short has only the header's beginning."""
    if path.suffix == ".eval" or zipfile.is_zipfile(path):
        members = read_members(path, lambda n: n.startswith("samples/") or n in HEADERS)
        start = next((name for name in HEADERS if name in members), None)
        if start is None:
            raise DataError(f"holds no {HEADERS[0]}", file=path, fix="is it a log of inspect-ai?")
        header = _table(members[start], path, start)
        names = sorted(members.keys() - {*HEADERS})
        samples = [_table(members[name], path, name) for name in names]
    else:
        header = _table(path.read_bytes(), path)
        samples = header.pop("samples", None) or []
    if not isinstance(header.get("eval"), dict):
        raise DataError("missing", file=path, field="eval", fix="is it a log of inspect-ai?")
    for index, sample in enumerate(samples):
        if not isinstance(sample, dict):
            raise DataError("is not an object", file=path, field=f"samples[{index}]")
    return header, [Record(str(path), line, sample) for line, sample in enumerate(samples, 1)]


def _table(content: bytes, path: Path, name: str | None = None) -> dict[str, Any]:
    """The object in a text; NaN is the value that inspect-ai gives a sample without a score."""
    table = load_bytes(content, path, name)
    if not isinstance(table, dict):
        raise DataError("is not an object", file=path, field=name)
    return table
