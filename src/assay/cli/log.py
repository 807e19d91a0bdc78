"""`assay log`: shows the lab's dated notebook and adds notes to it."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names


def log(
    root: Path,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN | FILE",
            help="One run only: NAME, NAME/ID or NAME#SEED; or the note of an experiment file.",
            autocompletion=run_names,
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Add a note to the run's entry.")] = None,
    plan: Annotated[
        str | None, typer.Option(help="Add a plan for a run of this NAME that is still to come.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language: en or zh.")] = "en",
) -> Outcome:
    """Show the lab's notebook as Markdown; with --note or --plan, add to it."""
    from assay.errors import InputError
    from assay.pages.run_page.notebook import notebook
    from assay.runs.notes import add_note, read_notes
    from assay.runs.run_names import find_run, parse_run_name

    if note is not None and plan is not None:
        raise InputError("--note and --plan exclude each other", fix="choose one")
    if (note is not None or plan is not None) and run is None:
        raise InputError("a note needs a run", fix="write assay log RUN --note TEXT")
    if plan is not None and run is not None:
        name = parse_run_name(run)
        if name.id or name.checkpoint or name.seed is not None:
            raise InputError(f"{run!r} is more than a name", fix=f"plan for {name.name!r}")
        written = add_note(root, name.name, plan, "plan")
        return Outcome(written, [f"planned {written.about}: {written.text}"])
    if note is None and run is not None and run.endswith(".toml"):
        return file_note(root, run, lang)
    found = find_run(root, parse_run_name(run)) if run is not None else None
    if note is not None and found is not None:
        written = add_note(root, str(found), note)
        return Outcome(written, [f"noted for {written.about}: {written.text}"])
    text = notebook(root, found, lang)
    notes = [n for n in read_notes(root) if found is None or n.about == str(found)]
    return Outcome({"markdown": text, "notes": notes}, [text.rstrip("\n")])


def file_note(root: Path, file: str, lang: str) -> Outcome:
    """The notebook entry of an experiment file, before it is run."""
    from assay.experiment.read_file import read_experiment
    from assay.pages.run_page.notebook import file_entry
    from assay.pages.words import words

    text = file_entry(read_experiment(file), root, words(lang))
    return Outcome({"markdown": text, "notes": []}, [text.rstrip("\n")])
