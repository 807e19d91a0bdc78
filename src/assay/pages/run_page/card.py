"""Writes the model card of an exported checkpoint as Markdown, from the records of its run.

Starts with Hugging Face's front matter. Nothing is measured or judged here.
"""

import json
import re
from importlib.metadata import version
from typing import TYPE_CHECKING

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import OTHER_RUN, start_of
from assay.models.source import known_licence, parse_source
from assay.pages import content
from assay.pages.facts import RunFacts, gather
from assay.pages.markdown import page_markdown
from assay.pages.page import (
    Block,
    Bullets,
    Code,
    Heading,
    Line,
    Mark,
    Page,
    Row,
    Table,
    Text,
)
from assay.pages.provenance import DataView, data_views, leaves
from assay.pages.result_tables import checkpoint_label, marked_start, result_rows, stage_rows
from assay.pages.run_page import story
from assay.pages.words import Words, words
from assay.runs.run_names import experiment_of, resolve_checkpoint, run_checkpoint

if TYPE_CHECKING:  # exporting loads torch, which pages do without
    from assay.lab.run.merged_export import Exported

USE = """from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".", dtype="auto")
prompt = tokenizer.apply_chat_template(
    messages, tools=tools, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
answer = model.generate(**prompt, max_new_tokens=256)"""
HASH = re.compile(r"[0-9a-f]{32,}")


def model_card(made: "Exported", lang: str = "en") -> str:
    """The README.md of an export. Raises UnknownLanguage, and what reading the records raises."""
    facts, w = gather(made.run), words(lang)
    chain = stage_chain(facts, made.checkpoint)
    used = {facts.experiment.stage[name].data.partition(".")[0] for name, _ in chain}
    origin, earlier = origin_of(facts)
    licence = known_licence(parse_source(origin), made.base)
    hub = origin.removeprefix("hf:") if origin.startswith("hf:") else ""
    label = checkpoint_label(made.checkpoint, w)
    about = {"run": facts.run, "checkpoint": label, "seed": facts.status.seed}
    data = [view for view in data_views(facts, w) if view.name in used]
    scores = score_blocks(facts, made.checkpoint, w)
    readers = {"rendering": made.rendering, "dtype": made.dtype, "readers": made.readers}
    page = Page(
        w,
        f"{facts.run.name} · {label}",
        [
            *([Text(facts.experiment.about)] if facts.experiment.about else []),
            Text(w("card.made_by", version=version("assay-lab"), **about)),
            *(Text(said, "warning") for said in story.warnings(facts, w)),
            Heading(w("card.base"), 2),
            Bullets(base_lines(facts, origin, earlier, licence, w)),
            Heading(w("page.training"), 2),
            *stage_blocks(facts, chain, w),
            Heading(w("page.data"), 2),
            Bullets([data_line(view, w) for view in data]),
            Heading(w("page.results"), 2),
            *(scores or [Text(w("card.not_measured"))]),
            Heading(w("card.use"), 2),
            Text(w("card.use_about", **readers)),
            Code(USE, "python"),
            *([Text(w("card.gguf", file=made.gguf))] if made.gguf else []),
            Heading(w("card.fingerprints"), 2),
            Table(["", ""], fingerprints(facts, made, [name for name, _ in chain])),
        ],
    )
    return front_matter(licence, hub, facts.experiment.task) + page_markdown(page)


def front_matter(licence: str, hub_base: str, task: str) -> str:
    """What Hugging Face reads of a card; JSON is YAML."""
    lines = ["library_name: transformers", "pipeline_tag: text-generation"]
    lines += [f"license: {json.dumps(licence)}"] if licence else []
    lines += [f"base_model: {json.dumps(hub_base)}"] if hub_base else []
    tags = json.dumps(["assay", task])
    return "\n".join(["---", *lines, f"tags: {tags}", "---", "", ""])


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


def stage_blocks(facts: RunFacts, chain: list[tuple[str, int]], w: Words) -> list[Block]:
    """A row for each stage of the chain, and the settings of its method."""
    rows = {row.name: row for row in stage_rows(facts)}
    recorded = facts.manifest.get("stages", {})
    cells, details = [], []
    for name, step in chain:
        row = rows[name]
        rendering = recorded.get(name, {}).get("rendering", {}).get("name", "–")
        start = marked_start(row.start, w)
        title = f"{name}{w.within(row.method)}"
        cells.append([title, start, row.data, str(step), row.adapt, rendering, row.optimizer])
        details += [f"{name}{w.colon}{row.detail}"] if row.detail else []
    keys = ("card.stage", "card.start", "page.data", "card.step", "card.adapt")
    heads = [w(key) for key in (*keys, "card.rendering", "card.optimizer")]
    return [Table(heads, cells), Bullets(details)]


def data_line(view: DataView, w: Words) -> Line:
    """A data set in a line."""
    said = w("punctuation.stop").join((view.source, view.about))
    return Mark(view.name), w.colon, " ".join((said, *view.leakage))


def score_blocks(facts: RunFacts, checkpoint: str, w: Words) -> list[Block]:
    """Every evaluation of the checkpoint: its row, that of the control, and what both show."""
    rows, said = [], []
    for measurement in facts.reported:
        table = measurement.table
        lines = [] if table is None else [n for n in table.lines if n.name == checkpoint]
        if table is None or not lines:
            continue
        name = measurement.name + w.within(content.settings(measurement))
        rows += [
            [name, *content.score_cells(row, (0.0, 1.0), w)]
            for row in result_rows(facts, measurement, w)
            if row.line and row.name in (checkpoint, table.control.name)
        ]
        pairings = [p for p in (lines[0].to_control, lines[0].to_previous) if p is not None]
        sentences = [content.sentence(pairing, w) for pairing in pairings]
        place = f"{measurement.name}{w.comma}"
        said += [(place, Mark(each["what"]), w.colon, each["text"]) for each in sentences]
    heads = [w("table.evaluation"), *content.score_columns(w)]
    return [Table(heads, rows), Bullets(said)] if rows else []


def fingerprints(facts: RunFacts, made: "Exported", stages: list[str]) -> list[Row]:
    """The hash of the exported weights, then the manifest's; those of other stages are omitted."""
    others = facts.experiment.stage.keys() - set(stages)
    recorded = [
        (path, Mark(value, "code"))
        for path, value, _ in leaves(facts.manifest)
        if HASH.fullmatch(value) and not any(path.startswith(f"stages.{n}.") for n in others)
    ]
    return [("model.safetensors", Mark(made.weights_sha256, "code")), *recorded]
