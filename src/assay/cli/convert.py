"""`assay convert` writes data in other formats; `assay select` chooses rows by recorded answers."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.cli.output import Outcome
from assay.cli.run import RunName


def select(
    root: Path,
    run: RunName,
    to: Annotated[str, typer.Option(metavar="NAME")],
    stage: Annotated[str, typer.Option()],
    passes: float | None = None,
    threshold: float = 0.6,
) -> Outcome:
    """Choose rows that a run learned as the others (LIMR).

    to: Writes selections/NAME.json.
    stage: The stage whose samples count.
    passes: The smallest reward that is right; else the full one.
    threshold: Lowest score kept.
    """
    from assay.lab.select import select_rows

    done = select_rows(root, run, stage, to, passes, threshold)
    file = done.file.relative_to(root).as_posix()
    take = f'take = {{ selection = "{file}" }}'
    selection = done.selection
    # The fewest, the median (the lower of two) and the most answers that a score stands on.
    answers = sorted(row.answers for row in selection.rows if row.score is not None)
    each = [answers[0], answers[(len(answers) - 1) // 2], answers[-1]]
    counts, name = selection.counts, selection.data["name"].partition(".")[0]
    shown = [
        selection.origin,
        f"kept {counts['kept']} of {counts['scored']} rows; a score stands on {each[0]} to "
        f"{each[2]} answers (median {each[1]})",
        *(f"dropped, {why}: {count}" for why, count in counts["dropped"].items()),
        "",
        f"written: {done.file}",
        f"to train on it, write in [data.{name}]:",
        f"  {take}",
        f"or add to assay run: --set '{'data.' + name}.{take}'",
    ]
    result = {"file": file, "take": take, **selection.provenance, "answers_each": each}
    return Outcome(result, shown, warnings=done.warnings)


if TYPE_CHECKING:  # readers load pyarrow, which help must do without
    from assay.data.formats.convert_rows import Converted
    from assay.data.formats.plain_text import PlainText
    from assay.engines.proof import Proof


def convert(
    root: Path,
    source: Annotated[Path, typer.Argument(metavar="IN")],
    target: Annotated[Path, typer.Argument(metavar="OUT")],
    to: Annotated[str, typer.Option()],
    from_: Annotated[str, typer.Option("--from")] = "messages",
    split: Annotated[str | None, typer.Option(metavar="SHARE|ROWS")] = None,
    expand: Literal["each_turn", "last_call"] | None = None,
    undeclared_calls: Literal["keep", "drop"] = "keep",
    for_: Annotated[str | None, typer.Option("--for", metavar="FILE.toml|MODEL")] = None,
    rendering: str | None = None,
    prove: bool = False,
) -> Outcome:
    """Convert conversations between formats.

    Says what was left out and what a format loses.

    source: The file to read.
    target: The file to write; a folder with --split.
    to: verl, swift, trl or messages.
    from_: The format of IN.
    split: What goes to test.*, the rest to train.*: 0.1 of the conversations, or 60 rows.
    expand: One row for each assistant turn, or the conversation to its last call.
    undeclared_calls: Rows with calls that no tool describes.
    for_: The experiment, or the model, that OUT trains: it is written as text that the model's own
        template makes the prompts of.
    rendering: The rendering of that text, else the experiment's, or auto; own: no text, but the
        format's own columns.
    prove: Load OUT in the tool itself and compare token by token.
    """
    from assay.data.formats.convert_rows import Conversion, places_of
    from assay.data.formats.convert_rows import convert as make
    from assay.engines.proof import prove as compare
    from assay.errors import InputError
    from assay.pages.live_display import PlainProgress

    if prove and for_ is None:
        fix = "--for EXPERIMENT or --for MODEL"
        raise InputError("needs a model to compare with", field="--prove", fix=fix)

    text = written_for(for_, None if rendering == "own" else rendering, root)
    wanted = Conversion(
        to=to,
        format=from_,
        expand=expand,
        keep_undeclared=undeclared_calls == "keep",
        text=None if rendering == "own" else text,
        dev=None if split is None else dev_side(split),
    )
    made = make(source, target, wanted, PlainProgress().work)
    lines = [f"{source}: {made.format}", *shown(made)]
    if text is None or not prove:
        return Outcome(made, lines)
    proofs = {str(each): compare(each, to, text) for each in places_of(target, wanted).values()}
    lines += [line for file, each in proofs.items() for line in proof_lines(file, each)]
    result = {f.name: getattr(made, f.name) for f in fields(made)} | {"proofs": proofs}
    return Outcome(result, lines, exit_code=0 if all(p.equal for p in proofs.values()) else 1)


def dev_side(text: str) -> float | int:
    """The value of `--split`: an integer is a number of rows. Raises InputError."""
    from assay.data.row_checks import DEV_FIX, dev_problem
    from assay.errors import InputError

    try:
        dev = int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number", field="--split", fix=DEV_FIX) from None
    if problem := dev_problem(dev):
        raise InputError(problem, field="--split", fix=DEV_FIX)
    return dev


def proof_lines(file: str, proof: "Proof") -> list[str]:
    """What a tool makes of a file, in one line, and where that first differs."""
    kinds = {
        "prompts": (proof.prompts, proof.questions),
        "trained answers": (proof.trained, proof.taught),
    }
    counts = [f"{n:,} of {total:,} {what} equal" for what, (n, total) in kinds.items() if total]
    counts += [f"{proof.beyond:,} trained beyond the answer's end"] if proof.beyond else []
    lines = [f"{file} in {proof.package}: {', '.join(counts)}"]
    return lines + ([f"{file}: {proof.difference}"] if proof.difference else [])


def shown(made: "Converted") -> list[str]:
    """One line for each file, and one for each thing to know about it."""
    lines = [
        f"{file}: {count:,} rows of {made.conversations[file]:,} conversations"
        for file, count in made.rows.items()
    ]
    lines += [f"left out: {count:,}: {reason}" for reason, count in made.dropped.items()]
    lines += [f"note: {count:,}: {words}" for words, count in made.remarks.items()]
    for file, losses in made.losses.items():
        lines += [f"{file} loses, {count:,} times: {loss}" for loss, count in losses.items()]
    return lines


def written_for(target: str | None, rendering: str | None, root: Path) -> "PlainText | None":
    """The text of `rendering` for the model that `target` names, or for an experiment file's; None
    where neither is named. An experiment's rendering is that of its stages, a model's "auto".

    Raises InputError for stages that differ in their renderings, and what reading them raises.
    """
    from assay.data.formats.plain_text import PlainText

    if target is None:
        return None if rendering is None else PlainText(rendering)
    # Only a model's own template needs the extra `train`.
    from assay.data.renderings.rendering import automatic
    from assay.errors import InputError
    from assay.experiment.read_file import read_experiment
    from assay.lab.models.language_learner import model_folder
    from assay.models.supported import read_tokenizer

    source, name = target, rendering or "auto"
    if target.endswith(".toml"):
        experiment = read_experiment(Path(target))
        source = experiment.model
        names = {stage.rendering for stage in experiment.stage.values()}
        if rendering is None and len(names) > 1:
            problem = f"has stages in several renderings: {', '.join(sorted(names))}"
            raise InputError(problem, file=target, fix="choose one with --rendering")
        name = rendering or min(names, default="auto")
    tokenizer = read_tokenizer(model_folder(source, root))
    return PlainText(automatic(tokenizer) if name == "auto" else name, tokenizer)
