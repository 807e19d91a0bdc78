"""Writes the model card of an exported checkpoint as Markdown, from the records of its run.

Starts with Hugging Face's front matter. Nothing is measured or judged here.
"""

import json
from importlib.metadata import version
from typing import TYPE_CHECKING

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.models.source import known_licence, parse_source
from assay.pages import content, story
from assay.pages.content import checkpoint_label
from assay.pages.facts import RunFacts, gather
from assay.pages.markdown import page_markdown
from assay.pages.page import Bullets, Code, Heading, Line, Mark, Page, Table, Text
from assay.pages.provenance import DataView, data_views
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


def model_card(made: "Exported", lang: str = "en") -> str:
    """The README.md of an export. Raises InputError, and what reading the records raises."""
    facts, w = gather(made.run), words(lang)
    chain = stage_chain(facts, made.checkpoint)
    used = {facts.experiment.stage[name].data.partition(".")[0] for name, _ in chain}
    origin, earlier = origin_of(facts)
    licence = known_licence(parse_source(origin), made.base)
    known = w("card.licence", licence=licence) if licence else w("card.licence_unknown")
    further = [w("card.earlier", source=source) for source in reversed(earlier)]
    hub = origin.removeprefix("hf:") if origin.startswith("hf:") else ""
    label = checkpoint_label(made.checkpoint, w)
    about = {"run": facts.run, "checkpoint": label, "seed": facts.status.seed}
    data = [view for view in data_views(facts, w) if view.name in used]
    tables = [each.table for each in facts.reported if each.table is not None]
    measured = any(line.name == made.checkpoint for table in tables for line in table.lines)
    scores = [b for each in facts.reported for b in content.result_blocks(facts, each, w)]
    readers = {"rendering": made.rendering, "dtype": made.dtype, "readers": made.readers}
    page = Page(
        w,
        f"{facts.run.name} · {label}",
        [
            *([Text(facts.experiment.about)] if facts.experiment.about else []),
            Text(w("card.made_by", version=version("assay-lab"), **about)),
            *(Text(warning, "warning") for warning in story.warnings(facts, w)),
            Heading(w("card.base"), 2),
            Bullets([w("card.origin", source=origin), *further, known]),
            Heading(w("page.training"), 2),
            Bullets([stage_line(facts, name, last, w) for name, last in chain]),
            Heading(w("page.data"), 2),
            Bullets([data_line(view, w) for view in data]),
            Heading(w("page.results"), 2),
            *(scores if measured else [Text(w("card.not_measured"))]),
            Heading(w("synthesis.use"), 2),
            Text(w("card.use_about", **readers)),
            Code(USE, "python"),
            *([Text(w("card.gguf", file=made.gguf))] if made.gguf else []),
            Heading(w("card.fingerprints"), 2),
            Table(["", ""], [("model.safetensors", Mark(made.weights_sha256, "code"))]),
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
        start = facts.experiment.stage[reference.stage].starts_from
        reference = start and resolve_checkpoint(facts.run, start)
    return chain


def origin_of(facts: RunFacts) -> tuple[str, list[str]]:
    """The base model, and the checkpoints of other runs in between."""
    model, earlier = facts.experiment.model, []
    while model.startswith("run:"):
        earlier.append(model)
        run, _, _ = run_checkpoint(model.removeprefix("run:"), facts.run.root)
        model = experiment_of(run).model
    return model, earlier


def stage_line(facts: RunFacts, name: str, last: int, w: Words) -> Line:
    """A stage of the chain with its settings, until the step that counts."""
    recorded = facts.manifest.get("stages", {}).get(name, {}).get("rendering", {})
    rendering = f"{w('card.rendering')} {recorded.get('name', '–')}"
    title = f"{name}{w.within(facts.experiment.stage[name].method)}"
    return Mark(title), w.colon, f"{story.about_stage(facts, name, w, last)} {rendering}"


def data_line(view: DataView, w: Words) -> Line:
    """A data set in a line."""
    source = w("punctuation.stop").join((view.source, view.about))
    return Mark(view.name), w.colon, " ".join((source, *view.leakage))
