"""The command line: `assay VERB`. Each verb imports what it needs when it is called.

Imports nothing heavy, so that help and completion are fast.
"""

import os
import sys
from itertools import chain
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from assay.cli.compare import audit, compare, matrix, plan
from assay.cli.convert import convert, select
from assay.cli.eval import engines, eval_, export, import_, serve, view
from assay.cli.explain import explain
from assay.cli.new import new
from assay.cli.output import Common, Json, Lab, name_of, present, verb
from assay.cli.replay import replay
from assay.cli.report import costs, report
from assay.cli.run import check, fill, resume, run, synthesise
from assay.cli.runs import delete, doctor, log, protect, runs, verify
from assay.errors import InputError

if not sys.stderr.isatty():  # bars of other packages would fill a log
    os.environ.setdefault("TQDM_DISABLE", "1")
GROUPS = {
    "train": (new, check, run, resume, fill),
    "measure": (eval_, compare, matrix, plan, audit),
    "data": (convert, synthesise, select),
    "look": (report, view, costs, replay, explain),
    "records": (runs,),
    "machine": (export, import_, serve, engines, doctor),
}
"""The verbs as `assay --help` shows them, each called as its function."""
OF_RUNS = (log, verify, protect, delete)
"""`assay runs VERB`; `assay runs` by itself lists them."""
OLD_VERBS = {
    "show": "assay report RUN:ID",
    "watch": "assay view, or assay report RUN again",
    "log": "assay runs log",
    "verify": "assay runs verify",
    "protect": "assay runs protect",
    "delete": "assay runs delete",
    "improve": "assay report RUN",
    "generate": "assay synthesise",
    "patterns": "assay report RUN",
    "label": "a file of labels in the rubric, labels = FILE, and assay report RUN",
    "ceiling": "arms of a sweep with model.policy, assay fill, and assay matrix or compare",
}
"""What took the place of a verb. One that is in none of the tables above answers with this."""
WIDTH = 80
"""Columns of the help page."""


class OneScreen(TyperGroup):
    """The verbs in groups, one line each."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        lines = [
            "Usage: assay [--lab DIR] [--json] VERB ...; assay VERB --help has its options.",
            "A post-training lab for small language models.",
            "",
        ]
        for group, verbs in GROUPS.items():
            for function in verbs:
                name = name_of(function)
                start = f"{group if function is verbs[0] else '':<9}{name:<12}"
                lines.append(start + self.commands[name].get_short_help_str(WIDTH - len(start)))
        lines += ["", "--lab DIR: the lab's root, else ASSAY_LAB, else this folder."]
        lines += ["--json: one JSON object on stdout.   --version   --install-completion"]
        formatter.write("\n".join(lines) + "\n")


app = typer.Typer(
    name="assay",
    cls=OneScreen,
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


for _function in chain(*GROUPS.values()):
    if _function is not runs:
        app.command(name_of(_function))(verb(_function))
_runs = typer.Typer(invoke_without_command=True, callback=verb(runs))
for _function in OF_RUNS:
    _runs.command(name_of(_function))(verb(_function, "runs "))
app.add_typer(_runs, name="runs")
for _name in OLD_VERBS:
    add_old(_name)
