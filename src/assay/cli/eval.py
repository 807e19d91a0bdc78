"""`assay eval TARGET --benchmark NAME`: measures a checkpoint or another model. Trains nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.output import Outcome, run_names


def evaluate(
    root: Path,
    target: Annotated[
        str,
        typer.Argument(
            help="NAME@CHECKPOINT of a run, or a model such as hf:ID, path:DIR, openai:NAME.",
            autocompletion=run_names,
        ),
    ],
    benchmark: Annotated[str, typer.Option(help="Such as bfcl/simple_python.")],
    repeats: Annotated[int, typer.Option(min=1, help="Full passes over the items.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy decoding.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longer answers are cut.")] = 256,
    take: Annotated[
        int | None, typer.Option(min=1, help="Use only so many items, drawn by the run's seed.")
    ] = None,
    rendering: Annotated[str, typer.Option(help="How conversations become text.")] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the benchmark; may be repeated."),
    ] = None,
) -> Outcome:
    """Evaluate a checkpoint; a record that exists is not made again."""
    from assay.cli.live_display import progress
    from assay.experiment.problems import made
    from assay.experiment.tables import EvaluateSpec
    from assay.lab.run.evaluate_again import evaluate_again

    values = {
        "benchmark": benchmark,
        "role": "report",
        "checkpoints": ["base"],
        "repeats": repeats,
        "take": {"rows": take} if take else None,
        "sampling": {"temperature": temperature, "max_tokens": max_tokens},
        "options": options_of(option or ()),
        "rendering": rendering,
    }
    spec = made(EvaluateSpec, values)
    with progress() as observer:
        done = evaluate_again(root, target, spec, observer)
    return measured(done)


def measured(done: Any) -> Outcome:
    """The score of a `lab.run.evaluate_again.Evaluated` with its interval."""
    from assay.judge.findings import filled
    from assay.judge.intervals import score_interval
    from assay.judge.paired import score_range
    from assay.lab.evaluate.run_evaluation import recorded_outcomes
    from assay.lab.setup.evaluation import BASE, trained_on
    from assay.report.words import score_text
    from assay.runs.manifest_file import read_manifest
    from assay.runs.measurements import find_record
    from assay.runs.records import read_scores

    record = find_record(done.run, done.key)
    scores = read_scores(done.run, record, done.checkpoint)
    interval = score_interval(scores)
    counted = recorded_outcomes(done.file)
    shown = (scores.mean, interval.low, interval.high)
    score, low, high = (score_text(value, interval) for value in shown)
    size = filled("{items:items}", {"items": len(scores.item_ids)})
    if scores.sources is not None:
        size = filled("{size} in {sources:clusters}", {"size": size, "sources": scores.sources})
    least, most = score_range(scores)
    possible = f" ({least:.1%} to {most:.1%} whatever they are)" if scores.missing else ""
    result = {
        "run": str(done.run),
        "evaluation": done.evaluation,
        "checkpoint": done.checkpoint,
        "made": done.made,
        "file": done.file,
        "score": scores.mean,
        "interval": interval,
        "items": len(scores.item_ids),
        "clusters": scores.sources,
        "repeats": scores.repeats,
        "trained_on_items": record.shared if done.checkpoint != BASE else {},
        "abstained": scores.missing,
        "possible": (least, most),
        "abstentions": counted.unscored,
        "outcomes": counted.outcomes,
        "differs_from_math_verify": counted.differs,
    }
    words = [
        f"{done.run}@{done.checkpoint} on {done.evaluation}: {score} "
        f"({low} to {high}), {size}, "
        f"{scores.repeats} repeat(s), {scores.missing} unscored (reward failed){possible}",
        f"record: {done.file}",
    ]
    words += [", ".join(f"{name} {count}" for name, count in counted.outcomes.items())]
    if counted.differs:
        words.append(f"math-verify by itself would judge otherwise: {counted.differs}")
    words += [f"unscored {count} times: {why}" for why, count in counted.unscored.items()]
    trained = trained_on(done.checkpoint, record.shared, read_manifest(done.run))
    words += [f"warning: {text}" for text in [counted.too_many_unscored, *trained] if text]
    if not done.made:
        words.insert(0, "this record existed already; nothing was evaluated again")
    return Outcome(result, words)


def options_of(texts: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` with TOML values; text that is not TOML is a string. Raises InputError."""
    from assay.data.toml_text import TomlInvalid, load_toml
    from assay.errors import InputError

    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError("is not KEY=VALUE", field=f"--option {text}")
        try:
            options[key] = load_toml(f"value = {value}")["value"]
        except TomlInvalid:
            options[key] = value
    return options
