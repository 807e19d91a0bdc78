"""The verbs about models and machines: eval, export, import, serve, view, engines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.output import Lang, Outcome, run_names, taken
from assay.cli.run import Overrides
from assay.pages.safe_console import tell

if TYPE_CHECKING:  # reading records loads pyarrow, which help must do without
    from assay.judge.intervals import Interval
    from assay.library.typed_results import EvaluationResult

Host = Annotated[
    str, typer.Option(help="The address to listen on; others than loopback need a token.")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="Holds the token of clients; else ASSAY_SERVE_TOKEN.")
]


def view(
    root: Path,
    labs: Annotated[list[Path] | None, typer.Argument(metavar="[LAB]...")] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8010,
    token_file: TokenFile = None,
    lang: Lang = "en",
) -> Outcome:
    """Show labs in a browser until Ctrl-C.

    labs: The roots of labs; else the one of --lab.
    port: 0 takes a free one.
    """
    from assay.pages.words import words
    from assay.view.app import view as show

    words(lang)
    done = show(labs or [root], host=host, port=port, token_file=token_file, lang=lang, note=tell)
    return Outcome(done, [f"showed {', '.join(done['labs'])}"])


def engines(
    root: Path,
    deed: Annotated[Literal["add", "keys"] | None, typer.Argument()] = None,
    name: Annotated[str | None, typer.Argument()] = None,
    key: Annotated[str | None, typer.Argument()] = None,
) -> Outcome:
    """List tools apart from Assay, add one, or show its keys.

    deed: Install one; or its settings in Assay's words.
    name: vllm, verl, swift, trl, ...
    key: Only this setting, or the tool's key.
    """
    from rich.table import Column, Table
    from rich.text import Text

    from assay.engines.environments import add, environment_for, survey
    from assay.errors import InputError

    if deed is not None and name is None:
        raise InputError("which one?", field="NAME", fix="such as: assay engines add vllm")
    if deed == "keys" and name is not None:
        from assay.trainers.register import lines

        known = lines(name, key)
        table = Table("Assay", Column(name, overflow="fold"), "how", "what differs")
        for each in known:
            table.add_row(*map(Text, (each.ours, ", ".join(each.theirs), each.how, each.unlike)))
        return Outcome({"keys": known}, [table])
    environments = survey() if name is None else [add(environment_for(name))]
    table = Table("", "package", "installed", "what does not fit")
    for each in environments:
        table.add_row(*map(Text, (each.name, each.package, each.version, each.problem)))
    return Outcome({"engines": environments}, [table])


def import_(
    root: Path,
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    from_: Annotated[str, typer.Option("--from")],
    name: str | None = None,
    stage: str | None = None,
    model: Annotated[str | None, typer.Option(metavar="SOURCE")] = None,
    task: str = "chat",
    config: Path | None = None,
    log: Path | None = None,
    lang: Lang = "en",
) -> Outcome:
    """Take over a run that TRL, verl or ms-swift made.

    Its metrics, samples, checkpoints and settings.

    folder: What `assay export` or the tool itself made.
    from_: trl, verl or swift.
    name: Name of the run; omitted: made of the folder's.
    stage: What the stage is called; omitted: as its method.
    model: The base model, where the folder does not say it.
    task: The task of a run that was made without Assay.
    config: verl: Hydra's config.yaml, where it lies elsewhere.
    log: verl: the file logger's lines, where they lie elsewhere.
    """
    from assay.errors import look_up
    from assay.lab.run.trainer_import import Request, import_run
    from assay.pages.live_display import PlainProgress
    from assay.pages.run_page import write_report
    from assay.pages.words import words
    from assay.trainers.register import TRAINERS

    words(lang)
    look_up(TRAINERS, from_, "trainer")
    request = Request(from_, folder, name, stage, model, task, config, log)
    made = import_run(root, request, PlainProgress())
    page, origin = write_report(made.run, lang), made.origin
    count = f"{made.steps:,} steps, {len(made.checkpoints)} checkpoints"
    shown = [f"{made.run}: {origin.stage}, {count}, from {folder}"]
    why = "is not whole, or lies inside a round: left out"
    warnings = [f"{each} {why}" for each in made.left_out]
    shown += ["unknown: " + ", ".join(origin.unknown)] if origin.unknown else []
    shown += [f"differs: {key}: {what}" for key, what in origin.differences.items()]
    if origin.unasked:
        shown.append(f"not asked, as nothing trains any more: {', '.join(origin.unasked)}")
    if evaluations := (*origin.experiment.evaluate,):
        shown.append(f"next: assay resume {made.run.name}: measures {', '.join(evaluations)}")
    elif made.checkpoints:
        shown.append(f"next: assay eval {made.run}@{origin.stage}.last --benchmark NAME")
    shown += [f"page: {page}"]
    known = taken(origin, "stage", "unknown", "differences", "unasked")
    result = {**taken(made, "run", "steps", "checkpoints"), **known}
    result |= {"page": page, "evaluations": evaluations}
    return Outcome(result, shown, warnings=warnings)


def export(
    root: Path,
    target: Annotated[str, typer.Argument(metavar="RUN@CHECKPOINT|FILE", autocompletion=run_names)],
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    dtype: Literal["bf16", "fp32"] | None = None,
    gguf: bool = False,
    push: Annotated[str | None, typer.Option(metavar="OWNER/NAME")] = None,
    to: str | None = None,
    stage: str | None = None,
    allow: Annotated[list[str] | None, typer.Option(metavar="KEY")] = None,
    overrides: Overrides = None,
    unproven: bool = False,
    lang: Lang = "en",
) -> Outcome:
    """Export a checkpoint, or a stage for another trainer.

    A checkpoint becomes one merged model.

    target: NAME@STAGE.best, NAME@STAGE.last or NAME@STAGE.step-N; with --to, an experiment.
    folder: The folder to make; an empty one may exist.
    dtype: Number format of the weights; omitted: bf16, or that of a base that reads images.
    gguf: Write a GGUF file too.
    push: Upload it as a new private repository.
    to: Export a stage of FILE for trl, verl or swift to train.
    stage: With --to: the stage, where there are several.
    allow: With --to: a setting that the tool does not have.
    unproven: With --to: do not load the rows in the tool.
    """
    if to is not None:
        refuse_given("--to", {"--dtype": dtype, "--gguf": gguf, "--push": push})
        options = {"stage": stage, "allowed": allow or [], "unproven": unproven}
        return trainer_export(root, Path(target), to, folder, overrides or [], options)
    refuse_given("a checkpoint", {"--stage": stage, "--allow": allow, "--set": overrides})
    from assay.lab.run.merged_export import export as make
    from assay.models.source import check_push
    from assay.models.source import push as upload
    from assay.pages.card import model_card
    from assay.pages.live_display import PlainProgress
    from assay.pages.words import words

    words(lang)
    if push is not None:
        check_push(push)
    options: dict[str, Any] = {"dtype": dtype, "gguf": gguf, "observer": PlainProgress()}
    made = make(root, target, folder, lambda e: model_card(e, lang), **options)
    shown = [f"{folder}: {made.run}@{made.checkpoint}, {made.dtype}, rendering {made.rendering!r}"]
    shown += [f"{folder / made.gguf}: for llama.cpp"] if made.gguf else []
    address = upload(folder, push) if push is not None else None
    shown += [f"pushed to {address}"] if address else []
    result = {"folder": folder, "checkpoint": f"{made.run}@{made.checkpoint}", "pushed": address}
    result |= taken(made, "dtype", "rendering", "weights_sha256")
    return Outcome({**result, "gguf": folder / made.gguf if made.gguf else None}, shown)


def refuse_given(beside: str, options: dict[str, Any]) -> None:
    """Raise InputError for an option that means nothing beside what else is asked for."""
    from assay.errors import InputError

    for option, value in options.items():
        if value:
            raise InputError(f"means nothing with {beside}", field=option, fix="leave it out")


def trainer_export(
    root: Path, file: Path, tool: str, folder: Path, overrides: list[str], options: dict[str, Any]
) -> Outcome:
    """`assay export FILE --to TOOL DIR`."""
    from assay.experiment.read_file import lines_named
    from assay.lab.run.trainer_export import NOT_PROVEN, export_for
    from assay.lab.session.validate import read_whole

    experiment = read_whole(file, overrides, root)
    with lines_named(experiment.origin):
        made = export_for(root, experiment, tool, folder, **options)
    proof = made.proof
    shown = [f"{folder}: stage {made.stage} for {tool}, {made.rows:,} rows in the order of visits"]
    shown.append(
        NOT_PROVEN if proof is None else f"{proof.package} makes Assay's tokens of the rows"
    )
    shown += [f"differs: {each.key}: {tool} {each.what}" for each in made.differences]
    told = taken(made, "stage", "rows", "settings", "differences", "proof")
    return Outcome({"folder": folder, "tool": tool, **told}, shown)


def serve(
    root: Path,
    target: Annotated[str, typer.Argument(autocompletion=run_names)],
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token_file: TokenFile = None,
    rendering: str = "auto",
    name: str | None = None,
) -> Outcome:
    """Serve a checkpoint to OpenAI clients until Ctrl-C.

    target: NAME@CHECKPOINT of a run, or a model such as OWNER/NAME or path:DIR.
    port: 0 takes a free one.
    rendering: How chats become text.
    name: The model's name for clients; else the target.
    """
    from assay.serve.server import serve as serve_model

    done = serve_model(
        root,
        target,
        host=host,
        port=port,
        token_file=token_file,
        rendering=rendering,
        name=name,
        note=tell,
    )
    return Outcome(done, [f"served {done['model']} at {done['url']}"])


def eval_(
    root: Path,
    target: Annotated[str, typer.Argument(autocompletion=run_names)],
    benchmark: Annotated[str, typer.Option()],
    repeats: Annotated[int, typer.Option(min=1)] = 1,
    temperature: Annotated[float, typer.Option(min=0)] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1)] = 256,
    take: Annotated[int | None, typer.Option(min=1)] = None,
    rendering: str = "auto",
    task: str | None = None,
    agent: str | None = None,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    on: Annotated[str | None, typer.Option(metavar="ray | ADDRESS")] = None,
) -> Outcome:
    """Evaluate a checkpoint or a model on a benchmark.

    A record that exists is not made again.

    target: NAME@CHECKPOINT of a run, or a model such as OWNER/NAME, path:DIR, openai:NAME.
    benchmark: Such as bfcl/simple_python; or path:ROWS.jsonl.
    repeats: Full passes over the items.
    temperature: 0 is greedy decoding.
    max_tokens: Longer answers are cut.
    take: Use only so many items, drawn by the run's seed.
    rendering: How conversations become text.
    task: The task of a model, such as path:my_task.py; omitted: found.
    agent: Plays rows: path:FILE.py:FUNCTION, or a table of TOML.
    option: Of the benchmark or the source; may be repeated.
    on: Spread the items with Ray: on this machine, or on the cluster at an address.
    """
    from assay.library.actions import evaluate

    done = evaluate(
        target,
        benchmark,
        root=root,
        task=task,
        agent=None if agent is None else options_of([f"agent={agent}"])["agent"],
        repeats=repeats,
        temperature=temperature,
        max_tokens=max_tokens,
        take=take,
        rendering=rendering,
        options=options_of(option or ()),
        on=on,
    )
    return Outcome(done, measured(done))


def measured(done: "EvaluationResult") -> list[str]:
    """The score with its interval, the outcomes, the limits of generation, what repeats say and the
    warnings, a line each."""
    from assay.judge.templates import filled
    from assay.pages import content
    from assay.pages.words import score_text, words

    def told(score: float, interval: "Interval") -> str:
        return f"{score_text(score, interval)} ({content.interval_text(interval, w)})"

    w, answers = words(), done.items * done.repeats
    size = content.clustered(filled("{items:items}", {"items": done.items}), done.clusters, w)
    least, most = done.possible
    possible = f" ({least:.1%} to {most:.1%} whatever they are)" if done.abstained else ""
    place, scored = (
        f"{done.run}@{done.checkpoint} on {done.evaluation}",
        sum(done.outcomes.values()),
    )
    outcomes = (f"{name} {count} ({count / scored:.1%})" for name, count in done.outcomes.items())
    cut = content.truncated_text(done.truncated, answers, w)
    lines = [] if done.made else ["this record existed already; nothing was evaluated again"]
    lines += [
        f"{place}: {told(done.score, done.interval)}, {size}, "
        f"{done.repeats} repeat(s), {done.abstained} unscored (reward failed){possible}",
        f"record: {done.file}",
        ", ".join(outcomes),
        f"{content.settings_text(done.limits)}; truncated: {cut}",
    ]
    if done.sampled is not None:
        figures = content.figures_by_name(done.sampled).items()
        lines += [f"{name}: {told(figure.value, figure.interval)}" for name, figure in figures]
        lines += content.sampled_notes([done.sampled], w)
    if done.fallbacks is not None:
        share = done.fallbacks / answers
        lines.append(f"scored by a fallback metric: {done.fallbacks} ({share:.1%})")
    lines += [f"unscored {count} times: {why}" for why, count in done.abstentions.items()]
    return lines + [f"warning: {text}" for text in done.warnings]


def options_of(texts: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` with TOML values; text that is not TOML is a string. Raises InputError."""
    from assay.data.toml_text import load_toml
    from assay.errors import InputError

    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError("is not KEY=VALUE", field=f"--option {text}")
        try:
            options[key] = load_toml(f"value = {value}")["value"]
        except InputError:
            options[key] = value
    return options
