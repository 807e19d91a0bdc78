"""Writes the model card of an exported checkpoint as Markdown, from the records of its run.

Starts with Hugging Face's front matter. Nothing is measured or judged here.
"""

import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import OTHER_RUN, start_of
from assay.models.source import known_licence, parse_source
from assay.pages import content
from assay.pages.facts import Measurement, RunFacts, gather
from assay.pages.provenance import data_views, leaves
from assay.pages.result_tables import checkpoint_label, marked_start, result_rows, stage_rows
from assay.pages.run_page import story
from assay.pages.templating import render
from assay.pages.words import Words, words
from assay.runs.run_names import experiment_of, resolve_checkpoint, run_checkpoint

if TYPE_CHECKING:  # exporting loads torch, which pages do without
    from assay.lab.run.merged_export import Exported

HASH = re.compile(r"[0-9a-f]{32,}")


def model_card(made: "Exported", lang: str = "en") -> str:
    """The README.md of an export. Raises UnknownLanguage, and what reading the records raises."""
    facts, w = gather(made.run), words(lang)
    chain = stage_chain(facts, made.checkpoint)
    used = {facts.experiment.stage[name].data.partition(".")[0] for name, _ in chain}
    origin, earlier = origin_of(facts)
    licence = known_licence(parse_source(origin), made.base)
    values: dict[str, Any] = {
        "w": w,
        "facts": facts,
        "made": made,
        "version": version("assay-lab"),
        "title": f"{facts.run.name} · {checkpoint_label(made.checkpoint, w)}",
        "label": checkpoint_label(made.checkpoint, w),
        "warnings": story.warnings(facts, w),
        "licence": licence,
        "hub_base": origin.removeprefix("hf:") if origin.startswith("hf:") else "",
        "base": base_lines(facts, origin, earlier, licence, w),
        "stages": stage_views(facts, chain, w),
        "data": [view for view in data_views(facts, w) if view.name in used],
        "scores": score_views(facts, made.checkpoint, w),
        "fingerprints": fingerprints(facts, made, [name for name, _ in chain]),
    }
    return render("card.md.j2", values)


def stage_chain(facts: RunFacts, checkpoint: str) -> list[tuple[str, int]]:
    """The stages that lead to a checkpoint, in order, each with its last step that counts."""
    chain: list[tuple[str, int]] = []
    reference = parse_checkpoint(checkpoint)
    while reference is not None and reference.stage is not None and reference.step != 0:
        chain.insert(0, (reference.stage, reference.step or 0))
        stage = facts.experiment.stage[reference.stage]
        other = stage.start.startswith(OTHER_RUN)
        reference = None if other else resolve_checkpoint(facts.run, start_of(stage))
    return chain


def origin_of(facts: RunFacts) -> tuple[str, list[str]]:
    """The base model, and the checkpoints of other runs in between."""
    model, earlier = facts.experiment.model, []
    while model.startswith("run:"):
        earlier.append(model)
        run, _, _ = run_checkpoint(model.removeprefix("run:"), facts.run.root)
        model = experiment_of(run).model
    return model, earlier


def base_lines(
    facts: RunFacts, origin: str, earlier: list[str], licence: str, w: Words
) -> list[str]:
    """The model, data and licences that the checkpoint was made from."""
    lines = [w("card.origin", source=origin)]
    lines += [w("card.earlier", source=source) for source in reversed(earlier)]
    known = w("card.licence", licence=licence) if licence else w("card.licence_unknown")
    return [*lines, known]


def stage_views(facts: RunFacts, chain: list[tuple[str, int]], w: Words) -> list[dict[str, Any]]:
    """A row for each stage of the chain."""
    rows = {row.name: row for row in stage_rows(facts)}
    recorded = facts.manifest.get("stages", {})
    return [
        {
            "name": name,
            "step": step,
            "rendering": recorded.get(name, {}).get("rendering", {}).get("name", "–"),
            **{key: getattr(rows[name], key) for key in ("method", "data", "adapt")},
            "start": marked_start(rows[name].start, w),
            **{key: getattr(rows[name], key) for key in ("optimizer", "detail")},
        }
        for name, step in chain
    ]


def score_views(facts: RunFacts, checkpoint: str, w: Words) -> list[dict[str, Any]]:
    """Every evaluation of the checkpoint: its row, that of the control, and what both show."""
    return [
        score_view(facts, measurement, checkpoint, w)
        for measurement in facts.reported
        if measurement.table and any(line.name == checkpoint for line in measurement.table.lines)
    ]


def score_view(
    facts: RunFacts, measurement: Measurement, checkpoint: str, w: Words
) -> dict[str, Any]:
    """One evaluation of the checkpoint."""
    table = measurement.table
    assert table is not None
    wanted = (checkpoint, table.control.name)
    rows = [r for r in result_rows(facts, measurement, w) if r.line and r.name in wanted]
    line = next(line for line in table.lines if line.name == checkpoint)
    pairings = [p for p in (line.to_control, line.to_previous) if p is not None]
    return {
        "name": measurement.name,
        "settings": content.settings(measurement),
        "rows": [content.row_view(row, (0.0, 1.0), w) for row in rows],
        "sentences": [content.sentence(pairing, w) for pairing in pairings],
    }


def fingerprints(facts: RunFacts, made: "Exported", stages: list[str]) -> list[tuple[str, str]]:
    """The hash of the exported weights, then the manifest's; those of other stages are omitted."""
    others = facts.experiment.stage.keys() - set(stages)
    recorded = [
        (path, value)
        for path, value, _ in leaves(facts.manifest)
        if HASH.fullmatch(value) and not any(path.startswith(f"stages.{n}.") for n in others)
    ]
    return [("model.safetensors", made.weights_sha256), *recorded]
