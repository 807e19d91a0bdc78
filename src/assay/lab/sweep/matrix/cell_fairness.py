"""Whether two cells of a matrix differ in nothing but what the axes are about.

The axes are declared differences, with what follows from them: a data axis changes the rows that
the manifest fingerprints. Everything else is a confound, as in any comparison.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from assay.compare.fairness import (
    BASE,
    NOT_COMPARED,
    refuse_mixed,
    refuse_trained,
    trained_between,
)
from assay.compare.measured_arm import marked_fallback
from assay.experiment.read_file import read_experiment
from assay.judge.confounds import Confound, differences
from assay.lab.sweep.matrix.model import Measurement, Source
from assay.runs.manifest_file import CHECKED, read_manifest
from assay.runs.records import read_columns

ROWS = ("contents_sha256", "prompts_sha256", "train", "dev", "dropped", "total")
"""What a manifest says about the rows of a data set."""
APART = (*NOT_COMPARED, "role")
"""Fields of a record that are compared elsewhere or change no score."""


def unfair(
    control: Sequence[Measurement],
    other: Sequence[Measurement],
    keys: Sequence[str],
    allow: Sequence[str] = (),
) -> list[Confound]:
    """The undeclared differences between two cells; `keys` are the axes and what arms set.

    Raises Unfair for a checkpoint that was trained on the items it answered, whatever is allowed.
    """
    for source in (s for measurement in (*control, *other) for s in measurement.sources):
        if source.checkpoint != BASE:
            refuse_trained(f"{source.run}@{source.checkpoint}", source.run, source.record)
    patterns = [pattern for key in keys for pattern in follows(key)]
    pairs = [
        (a, b)
        for before, after in zip(control, other, strict=True)
        for a, b in zip(before.sources, after.sources, strict=False)
    ]
    found = {c.path: c for a, b in pairs for c in _differences(a, b, keys, allow)}
    return [
        c
        for c in found.values()
        if c.kind == "confound" and not any(_under(c.path, pattern) for pattern in patterns)
    ]


def refuse_mixed_metrics(measured: Iterable[Measurement]) -> None:
    """Raise Unfair where a fallback metric scored some answers to a benchmark and not others.

    Cells stand side by side and are averaged, so that it is asked of all of them at once, compared
    or not.
    """
    by_benchmark: dict[str, dict[str, tuple[int, int]]] = {}
    for source in (source for measurement in measured for source in measurement.sources):
        counts = by_benchmark.setdefault(source.record.benchmark, {})
        file = source.record.file(source.run.evaluations, source.checkpoint)
        name = f"{source.run}@{source.checkpoint}"
        if (name := f"{name} on {source.record.name}") not in counts:
            texts = read_columns(file, ["parts"])["parts"]
            marked = marked_fallback(texts)
            counts[name] = sum(text in marked for text in texts), len(texts)
    for counts in by_benchmark.values():
        refuse_mixed(counts)


def _differences(a: Source, b: Source, keys: Sequence[str], allow: Sequence[str]) -> list[Confound]:
    vary = [*keys, *read_experiment(a.run.spec).vary, *read_experiment(b.run.spec).vary]
    vary += trained_between(a.run, a.checkpoint, b.run, b.checkpoint)
    return differences(_table(a), _table(b), vary, allow)


def _table(source: Source) -> dict[str, Any]:
    """The manifest with the one evaluation that counts."""
    manifest = {
        k: v for k, v in read_manifest(source.run).items() if k not in ("evaluation", CHECKED)
    }
    record = {k: v for k, v in asdict(source.record).items() if k not in APART}
    return {**manifest, "evaluation": record}


def follows(key: str) -> list[str]:
    """Patterns of the manifest paths that a declared key changes besides itself."""
    parts = key.split(".")
    if parts[0] == "data" and len(parts) > 1:
        rows = (*ROWS, "file_sha256") if parts[2:] in ([], ["source"]) else ROWS
        return [f"data.{parts[1]}.{row}" for row in rows]
    if parts[0] == "model":
        # Another tokenizer renders the same rows otherwise.
        return ["data.*.prompts_sha256", "stages.*.rendering", "evaluation.rendering"]
    if parts[0] == "stage" and parts[-1] == "rendering":
        return [f"stages.{parts[1]}.rendering", "data.*.prompts_sha256"]
    if parts[0] == "evaluate":
        # The record's own table has no name in the middle; prompts with examples are other items.
        return [".".join(["evaluation", *parts[2:]]), "evaluation.items_hash"]
    return ["evaluation.items_hash"] if parts[0] == "evaluation" else []


def _under(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")
