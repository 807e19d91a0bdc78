"""Pages that other verbs make, made on request: comparisons, matrices, notebook, trials, costs.

The same functions build them; nothing of them is written.
"""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from assay.compare.compare_names import CompareOptions, compare_names
from assay.compare.foreign_arms import is_file
from assay.errors import InputError
from assay.judge.verdict import ALPHA
from assay.lab.monitor.run_costs import run_costs
from assay.lab.sweep.matrix.request import Request as MatrixRequest
from assay.lab.sweep.matrix.request import make_matrix
from assay.pages.command_tables.cost_tables import costs_page
from assay.pages.comparison.comparison_page import comparison_page
from assay.pages.matrix.matrix_page import matrix_page
from assay.pages.page import Block, Code, Column, Field, Form, Page, Table, Text
from assay.pages.run_page.notebook import notebook_blocks
from assay.pages.words import Words, flat
from assay.runs.trial_ledger import looks_by_benchmark
from assay.view.frame import Shown, lab_address
from assay.view.runs_page import run_of
from assay.view.window import Window


def compare_page(window: Window, request: Request, w: Words) -> Shown:
    """Runs against the first of them, with the fairness check. Raises InputError for what is
    unfair."""
    lab, asked = request.path_params["lab"], request.query_params
    root, names = window.root(lab), names_of(request)
    options = CompareOptions(
        control=asked.get("control") or None,
        on=asked.get("on") or None,
        allow=tuple(asked.getlist("allow")),
    )
    form = Form(
        lab_address(lab, "compare"),
        [
            Field("run", w("view.compared"), " ".join(names)),
            Field("control", w("view.control"), asked.get("control", "")),
            Field("on", w("view.evaluation"), asked.get("on", "")),
            Field("allow", w("view.allow"), asked.get("allow", "")),
        ],
        [(w("view.compare"), lab_address(lab, "compare"))],
    )
    if len(names) < 2:
        return Shown(Page(w, w("view.compare"), [Text(w("view.tick_two")), form]), lab=lab)
    try:
        table = compare_names(root, names, options)
    except InputError as error:  # with its fields, where what was refused can be mended
        refused = [Text(flat(str(error)), "error"), form]
        return Shown(Page(w, w("view.compare"), refused), lab=lab, status=400)
    page = comparison_page(table, w, root)
    command = " ".join(["assay compare", *names, *(["--on", options.on] if options.on else [])])
    blocks: list[Block] = [
        *page.blocks,
        form,
        Text(w("view.same_command"), "soft"),
        Code(command, "sh"),
    ]
    return Shown(Page(w, page.title, blocks, page.footer, page.document), lab=lab)


def names_of(request: Request) -> list[str]:
    """The runs that an address names, by tick or in one field. Raises InputError for a file: the
    window shows runs alone."""
    names = [each for text in request.query_params.getlist("run") for each in text.split()]
    for name in names:
        if is_file(name) or name.endswith(".toml"):
            raise InputError(f"{name!r} is a file", fix="the window shows runs; use the verb")
    return list(dict.fromkeys(names))


def matrix_shown(window: Window, request: Request, w: Words) -> Shown:
    """Runs pivoted by their keys."""
    lab, asked = request.path_params["lab"], request.query_params
    root, names = window.root(lab), names_of(request)
    one = ("rows", "columns", "checkpoint", "baseline", "select")
    several = ("layers", "on", "allow")
    values: dict[str, Any] = {name: asked.get(name) or None for name in one}
    values |= {name: tuple(asked.get(name, "").split()) for name in several}
    fields = [Field("run", w("view.compared"), " ".join(names))]
    fields += [
        Field(name, w(f"view.{name}"), asked.get(name, ""))
        for name in ("rows", "columns", "layers", "on", "checkpoint", "baseline", "select", "allow")
    ]
    form = Form(
        lab_address(lab, "matrix"), fields, [(w("view.matrix"), lab_address(lab, "matrix"))]
    )
    if not names or not values["rows"]:
        return Shown(Page(w, w("view.matrix"), [Text(w("view.matrix_needs")), form]), lab=lab)
    page = matrix_page(make_matrix(root, names, MatrixRequest(**values)), root, w)
    return Shown(Page(w, page.title, [*page.blocks, form], page.footer, page.document), lab=lab)


def notebook_shown(window: Window, request: Request, w: Words) -> Shown:
    """The notebook of a lab, or the entry of one run."""
    lab, name = request.path_params["lab"], request.query_params.get("run", "")
    only = window.run(lab, name) if name else None
    blocks = notebook_blocks(window.root(lab), only, w)
    return Shown(Page(w, w("log.title", lab=lab), blocks or [Text(w("view.no_runs"))]), lab=lab)


def trials(window: Window, request: Request, w: Words) -> Shown:
    """How often each benchmark was looked at, over all runs of a lab."""
    lab = request.path_params["lab"]
    looks = looks_by_benchmark(window.root(lab))
    heads = ("benchmark", "looks", "of_runs", "deleted", "false_better")
    columns = [Column(w(f"view.{name}"), right=name != "benchmark") for name in heads]
    rows = []
    for name, each in looks.items():
        figures = asdict(each)
        false = f"{each.looks * ALPHA / 2:.2g}"
        rows.append([name, *(str(figures[key]) for key in ("looks", "runs", "deleted")), false])
    unknown = max((each.unknown for each in looks.values()), default=0)
    blocks: list[Block] = [Text(w("view.trials_about"), "soft")]
    blocks += [Text(w("view.unknown_runs", count=unknown), "warning")] if unknown else []
    blocks.append(Table(columns, rows) if rows else Text(w("view.no_trials")))
    return Shown(Page(w, w("view.trials"), blocks), lab=lab)


def costs_shown(window: Window, request: Request, w: Words) -> Shown:
    """What the helper models of a run cost."""
    lab, run = run_of(window, request)
    blocks = costs_page(run_costs(run), w)
    return Shown(Page(w, w("view.costs_of", run=run), blocks), lab=lab)
