"""`assay show RUN:ID`: shows a stored sample down to its tokens, and how it was judged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.output import Outcome

ID_HELP = (
    "RUN:EVALUATION/CHECKPOINT/ITEM#REPEAT or RUN:STAGE/STEP/ROW#SAMPLE, as pages write it; "
    "without #N all of them; RUN:ITEM for an item everywhere in the run."
)


def show(
    root: Path,
    id_: Annotated[str, typer.Argument(metavar="RUN:ID", help=ID_HELP)],
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Render the prompt again (reads the model).")
    ] = False,
) -> Outcome:
    """Show one sample, or all samples of a row or item, by id."""
    from assay.errors import InputError
    from assay.runs.history import find_samples
    from assay.runs.run_names import find_run, parse_run_name

    name, colon, rest = id_.partition(":")
    if not colon:
        raise InputError(f"{id_!r} names no sample", fix=f"write {ID_HELP}")
    run = find_run(root, parse_run_name(name))
    lines = find_samples(run, rest)
    if prompt:
        lines = with_prompts(run, lines)
    found = [{"id": f"{run}:{line['sample_id']}", **line} for line in lines]
    return Outcome(found, [words_of(line) for line in found])


def with_prompts(run: Any, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with the prompt that each answers."""
    from assay.experiment.read_file import read_experiment
    from assay.lab.monitor.observer import Silent
    from assay.lab.replay.side import prompt_of
    from assay.lab.setup.session import Session
    from assay.runs.status import stored_status

    session = Session(read_experiment(run.spec), run, stored_status(run.path).seed, Silent())
    return [{**line, "prompt": prompt_of(session, line)} for line in lines]


def words_of(line: Mapping[str, Any]) -> str:
    """One sample for people: numbers first, then prompt, text and tokens."""
    from assay.cli.output import quoted
    from assay.pages.words import flat
    from assay.runs.records import transcript

    judged = "score" if "score" in line else "reward"
    parts = ", ".join(f"{name} {value:g}" for name, value in line["parts"].items())
    value = "abstained" if line[judged] is None else f"{line[judged]:g}"
    facts = [flat(line["id"]), f"  {judged}: {value}" + (f" ({parts})" if parts else "")]
    facts += [
        f"  {name}: {flat(str(line[name]))}"
        for name in ("why", "error", "advantage", "ended", "file")
        if line.get(name) not in (None, "")
    ]
    facts += [
        f"  fact {flat(name)}: {flat(str(value))}"
        for name, value in (line.get("facts") or {}).items()
    ]
    blocks = [f"prompt:\n{quoted(line['prompt'])}"] if "prompt" in line else []
    if line.get("messages"):
        blocks.append(f"conversation:\n{quoted(transcript(line['messages']))}")
    else:
        blocks.append(f"text:\n{quoted(line['text'])}")
    tokens = " ".join(map(str, line["tokens"]))
    return "\n".join([*facts, *blocks, f"tokens ({len(line['tokens'])}): {tokens}", ""])
