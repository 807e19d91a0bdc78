"""The verbs about models and machines: eval, export, import, serve, view, engines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.output import Lang, Outcome, run_names
from assay.cli.run import Overrides
from assay.pages.safe_console import tell

Host = Annotated[
    str, typer.Option(help="The address to listen on; others than loopback need a token.")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="Holds the token of clients; else ASSAY_SERVE_TOKEN.")
]


def view(
    root: Path,
    labs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[LAB]...", help="The roots of labs; else the one of --lab."),
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8010,
    token_file: TokenFile = None,
    lang: Lang = "en",
) -> Outcome:
    """Show labs in a browser until Ctrl-C."""
    from assay.pages.words import words
    from assay.view.app import view as show

    words(lang)
    done = show(labs or [root], host=host, port=port, token_file=token_file, lang=lang, note=tell)
    return Outcome(done, [f"showed {', '.join(done['labs'])}"])


def engines(
    root: Path,
    deed: Annotated[
        Literal["add", "keys"] | None,
        typer.Argument(help="Install one; or its settings in Assay's words."),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="vllm, verl, swift, trl, ...")] = None,
    key: Annotated[str | None, typer.Argument(help="Only this setting, or the tool's key.")] = None,
) -> Outcome:
    """List tools apart from Assay, add one, or show its keys."""
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


def import_run(
    root: Path,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `assay export` or the tool itself made.")
    ],
    from_: Annotated[str, typer.Option("--from", help="trl, verl or swift.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the run; omitted: made of the folder's.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="What the stage is called; omitted: as its method.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="The base model, where the folder does not say it."),
    ] = None,
    task: Annotated[
        str, typer.Option(help="The task of a run that was made without Assay.")
    ] = "chat",
    config: Annotated[
        Path | None, typer.Option(help="verl: Hydra's config.yaml, where it lies elsewhere.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="verl: the file logger's lines, where they lie elsewhere.")
    ] = None,
    lang: Lang = "en",
) -> Outcome:
    """Take over a run that TRL, verl or ms-swift made.

    Its metrics, samples, checkpoints and settings.
    """
    from assay.errors import look_up
    from assay.lab.run.trainer_import import Request
    from assay.lab.run.trainer_import import import_run as take_over
    from assay.pages.live_display import PlainProgress
    from assay.pages.run_page import write_report
    from assay.pages.words import visible, words
    from assay.trainers.register import TRAINERS

    words(lang)
    look_up(TRAINERS, from_, "trainer")
    request = Request(from_, folder, name, stage, model, task, config, log)
    made = take_over(root, request, PlainProgress())
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
    result = {"run": made.run, "stage": origin.stage, "steps": made.steps}
    result |= {"unknown": origin.unknown, "checkpoints": made.checkpoints}
    result |= {"differences": origin.differences, "page": page}
    result |= {"evaluations": evaluations, "unasked": origin.unasked}
    return Outcome(result, [visible(line) for line in shown], warnings=warnings)


def export(
    root: Path,
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN@CHECKPOINT|FILE",
            help="NAME@STAGE.best, NAME@STAGE.last or NAME@STAGE.step-N; with --to, an experiment.",
            autocompletion=run_names,
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to make; an empty one may exist.")
    ],
    dtype: Annotated[
        Literal["bf16", "fp32"] | None,
        typer.Option(
            help="Number format of the weights; omitted: bf16, or that of a base that reads images."
        ),
    ] = None,
    gguf: Annotated[bool, typer.Option("--gguf", help="Write a GGUF file too.")] = False,
    push: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Upload it as a new private repository."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="Export a stage of FILE for trl, verl or swift to train.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="With --to: the stage, where there are several.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="With --to: a setting that the tool does not have."),
    ] = None,
    overrides: Overrides = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="With --to: do not load the rows in the tool.")
    ] = False,
    lang: Lang = "en",
) -> Outcome:
    """Export a checkpoint, or a stage for another trainer.

    A checkpoint becomes one merged model.
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
    result = {"folder": folder, "checkpoint": f"{made.run}@{made.checkpoint}", "dtype": made.dtype}
    result |= {"rendering": made.rendering, "weights_sha256": made.weights_sha256}
    result |= {"gguf": folder / made.gguf if made.gguf else None, "pushed": address}
    return Outcome(result, shown)


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
    result = {"folder": folder, "stage": made.stage, "tool": tool, "rows": made.rows}
    result |= {"settings": made.settings, "differences": made.differences, "proof": proof}
    return Outcome(result, shown)


def serve(
    root: Path,
    target: Annotated[
        str,
        typer.Argument(
            help="NAME@CHECKPOINT of a run, or a model such as OWNER/NAME or path:DIR.",
            autocompletion=run_names,
        ),
    ],
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: TokenFile = None,
    rendering: Annotated[str, typer.Option(help="How chats become text.")] = "auto",
    name: Annotated[
        str | None, typer.Option(help="The model's name for clients; else the target.")
    ] = None,
) -> Outcome:
    """Serve a checkpoint to OpenAI clients until Ctrl-C."""
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


if TYPE_CHECKING:  # reading records loads pyarrow, which help must do without
    from assay.library.typed_results import EvaluationResult


def evaluate(
    root: Path,
    target: Annotated[
        str,
        typer.Argument(
            help="NAME@CHECKPOINT of a run, or a model such as OWNER/NAME, path:DIR, openai:NAME.",
            autocompletion=run_names,
        ),
    ],
    benchmark: Annotated[str, typer.Option(help="Such as bfcl/simple_python; or path:ROWS.jsonl.")],
    repeats: Annotated[int, typer.Option(min=1, help="Full passes over the items.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy decoding.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longer answers are cut.")] = 256,
    take: Annotated[
        int | None, typer.Option(min=1, help="Use only so many items, drawn by the run's seed.")
    ] = None,
    rendering: Annotated[str, typer.Option(help="How conversations become text.")] = "auto",
    task: Annotated[
        str | None,
        typer.Option(help="The task of a model, such as path:my_task.py; omitted: found."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Plays rows: path:FILE.py:FUNCTION, or a table of TOML.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of the benchmark or the source; may be repeated."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ray | ADDRESS",
            help="Spread the items with Ray: on this machine, or on the cluster at an address.",
        ),
    ] = None,
) -> Outcome:
    """Evaluate a checkpoint or a model on a benchmark.

    A record that exists is not made again.
    """
    from assay.library.actions import evaluate as measure

    done = measure(
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
    """The score with its interval, the outcomes and the warnings, a line each."""
    from assay.judge.templates import filled
    from assay.pages.words import score_text

    shown = (done.score, done.interval.low, done.interval.high)
    score, low, high = (score_text(value, done.interval) for value in shown)
    size = filled("{items:items}", {"items": done.items})
    if done.clusters is not None:
        size = filled("{size} in {sources:clusters}", {"size": size, "sources": done.clusters})
    least, most = done.possible
    possible = f" ({least:.1%} to {most:.1%} whatever they are)" if done.abstained else ""
    words = [
        f"{done.run}@{done.checkpoint} on {done.evaluation}: {score} "
        f"({low} to {high}), {size}, "
        f"{done.repeats} repeat(s), {done.abstained} unscored (reward failed){possible}",
        f"record: {done.file}",
    ]
    scored = sum(done.outcomes.values())
    outcomes = done.outcomes.items()
    words += [", ".join(f"{name} {count} ({count / scored:.1%})" for name, count in outcomes)]
    words += generated(done)
    if done.fallbacks is not None:
        share = done.fallbacks / (done.items * done.repeats)
        words.append(f"scored by a fallback metric: {done.fallbacks} ({share:.1%})")
    words += [f"unscored {count} times: {why}" for why, count in done.abstentions.items()]
    words += [f"warning: {text}" for text in done.warnings]
    if not done.made:
        words.insert(0, "this record existed already; nothing was evaluated again")
    return words


def generated(done: "EvaluationResult") -> list[str]:
    """The limits of generation, the share of truncated answers, and what repeats say."""
    from assay.pages.content import (
        figures_by_name,
        sampled_notes,
        settings_text,
        truncated_text,
    )
    from assay.pages.words import score_text, words

    w = words()
    cut = truncated_text(done.truncated, done.items * done.repeats, w)
    lines = [f"{settings_text(done.limits)}; truncated: {cut}"]
    if done.sampled is not None:
        for name, figure in figures_by_name(done.sampled).items():
            shown = (figure.value, figure.interval.low, figure.interval.high)
            score, low, high = (score_text(value, figure.interval) for value in shown)
            lines.append(f"{name}: {score} ({low} to {high})")
        lines += sampled_notes([done.sampled], w)
    return lines


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
