"""The command line: `assay VERB`. Each verb imports what it needs when it is called.

Imports nothing heavy, so that help and completion are fast.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.compare import audit, compare, plan
from assay.cli.convert import convert, select
from assay.cli.engines import engines
from assay.cli.eval import evaluate, export, serve
from assay.cli.import_run import import_run
from assay.cli.label import label
from assay.cli.matrix import matrix
from assay.cli.output import Common, Json, Lab, Outcome, verb
from assay.cli.replay import replay
from assay.cli.report import costs, patterns, report, show
from assay.cli.resume import resume, watch
from assay.cli.run import ceiling, check, fill, generate, run, synthesise
from assay.cli.runs import delete, doctor, log, protect, runs, verify
from assay.cli.view import view
from assay.errors import InputError

VERBS = {
    "run": run,
    "resume": resume,
    "check": check,
    "ceiling": ceiling,
    "eval": evaluate,
    "compare": compare,
    "plan": plan,
    "label": label,
    "convert": convert,
    "audit": audit,
    "matrix": matrix,
    "generate": generate,
    "synthesise": synthesise,
    "fill": fill,
    "report": report,
    "watch": watch,
    "patterns": patterns,
    "log": log,
    "costs": costs,
    "replay": replay,
    "select": select,
    "runs": runs,
    "show": show,
    "verify": verify,
    "protect": protect,
    "delete": delete,
    "export": export,
    "import": import_run,
    "serve": serve,
    "view": view,
    "doctor": doctor,
    "engines": engines,
}

REMOVED = {"improve": "assay report RUN: its findings say what could be done better"}
"""Verbs that went, and what took their place."""

app = typer.Typer(
    name="assay",
    help="A post-training lab for small language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(wanted: bool) -> None:
    """`assay --version`."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay-lab')}")
        raise typer.Exit


@app.callback()
def common(
    ctx: typer.Context,
    lab: Lab = None,
    json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """A post-training lab for small language models."""
    ctx.obj = Common(lab, json)


def removed(name: str, instead: str) -> Callable[..., Outcome]:
    """A verb that says what took its place."""

    def refuse(root: Path, words: Annotated[list[str] | None, typer.Argument()] = None) -> Outcome:
        raise InputError(f"'assay {name}' is gone", fix=instead)

    return refuse


for _name, _function in VERBS.items():
    app.command(_name)(verb(_name, _function))
for _name, _instead in REMOVED.items():
    app.command(_name, hidden=True)(verb(_name, removed(_name, _instead)))
