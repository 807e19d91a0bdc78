"""The command line: `assay VERB`. Each verb imports what it needs when it is called.

Imports nothing heavy, so that help and completion are fast.
"""

from typing import Annotated, NoReturn

import typer

from assay.cli.compare import audit, compare, plan
from assay.cli.convert import convert, select
from assay.cli.engines import engines
from assay.cli.eval import evaluate, export, serve
from assay.cli.import_run import import_run
from assay.cli.matrix import matrix
from assay.cli.output import Common, Json, Lab, present, verb
from assay.cli.replay import replay
from assay.cli.report import costs, improve, report, show
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
    "convert": convert,
    "audit": audit,
    "matrix": matrix,
    "generate": generate,
    "synthesise": synthesise,
    "fill": fill,
    "report": report,
    "watch": watch,
    "improve": improve,
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
OLD_VERBS = {"patterns": "assay report RUN"}
"""What took the place of a verb that is gone."""

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


def add_old(name: str) -> None:
    """A verb that says what took its place, whatever stands behind it."""

    def refuse() -> NoReturn:
        raise InputError(f"'assay {name}' is gone", fix=f"now: {OLD_VERBS[name]}")

    def command(ctx: typer.Context) -> None:
        raise typer.Exit(present(name, ctx.obj.json or "--json" in ctx.args, refuse))

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, hidden=True, add_help_option=False, context_settings=anything)(command)


for _name, _function in VERBS.items():
    app.command(_name)(verb(_name, _function))
for _name in OLD_VERBS:
    add_old(_name)
