"""Pages that other verbs make, made on request: comparisons, matrices, notebook, trials, costs.

The same functions build them; nothing of them is written.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from assay.compare.compare_names import CompareOptions, compare_names
from assay.compare.foreign_arms import file_and_run, is_file, read_options
from assay.compare.table import Line
from assay.errors import InputError
from assay.judge.verdict import ALPHA
from assay.lab.monitor.run_costs import line_of_run, run_costs
from assay.lab.sweep.matrix.request import Request as MatrixRequest
from assay.lab.sweep.matrix.request import make_matrix
from assay.pages.command_tables.cost_tables import costs_page, lines_table
from assay.pages.comparison.comparison_page import comparison_page
from assay.pages.matrix.matrix_page import matrix_page
from assay.pages.page import (
    Block,
    Code,
    Column,
    Field,
    Form,
    Heading,
    Mark,
    Page,
    Table,
    Text,
    joined,
)
from assay.pages.run_page.notebook import dated_entries, notebook_blocks
from assay.pages.words import Words, flat
from assay.runs.cost_ledger import LedgerUnusable
from assay.runs.run_directory import all_runs
from assay.runs.trial_ledger import looks_by_benchmark
from assay.view.frame import Shown, lab_address, run_address
from assay.view.runs_page import page_links, page_number, run_of
from assay.view.window import Window

ENTRIES = 20
"""Of one page of the notebook."""
OF_FILES = ("format", "metric", "item", "score", "repeat", "cluster")
"""How files of other tools are read."""


def compare_page(window: Window, request: Request, w: Words) -> Shown:
    """Runs or files of results against the first of them, with the fairness check."""
    lab, asked = request.path_params["lab"], request.query_params
    root, names = window.root(lab), names_of(request)
    given = {name: asked.get(name) or None for name in ("control", "on", *OF_FILES)}
    allow = [path for path in asked.getlist("allow") if path]
    address, better = lab_address(lab, "compare"), asked.get("better", "")
    choices = [("", ""), *((name, w(f"view.better_{name}")) for name in ("higher", "lower"))]
    form = Form(
        address,
        [
            Field("run", w("view.compared"), shlex.join(names)),
            Field("control", w("view.control"), given["control"] or ""),
            Field("on", w("view.evaluation"), given["on"] or ""),
            Field("allow", w("view.allow"), " ".join(allow)),
        ],
        [(w("view.compare"), address)],
        more=[
            *(Field(name, w(f"view.file_{name}"), given[name] or "") for name in OF_FILES),
            Field("better", w("view.file_better"), better, "choice", choices),
        ],
        more_title=w("view.of_files"),
    )
    if len(names) < 2:
        return Shown(Page(w, w("view.compare"), [Text(w("view.tick_two")), form]), lab=lab)

    def made() -> Page:
        how = {"higher": True, "lower": False}.get(better)
        format, metric, item, score, repeat, cluster = (given[name] for name in OF_FILES)
        files = read_options(
            format, metric, cluster, item=item, score=score, repeat=repeat, higher_is_better=how
        )
        paths = tuple(path for text in allow for path in text.split())
        options = CompareOptions(given["control"], given["on"], paths, files)
        table = compare_names(root, [within(root, name) for name in names], options)
        return comparison_page(table, w, root, partial(_both_answers, lab))

    flags = [(name, value or "") for name, value in given.items()]
    way = [f"--{better}-is-better"] if better in ("higher", "lower") else []
    flags += [("allow", path) for text in allow for path in text.split()]
    return _made(lab, made, form, shlex.join(["assay", "compare", *names, *way, *_flags(flags)]), w)


def _made(lab: str, make: Callable[[], Page], form: Form, command: str, w: Words) -> Shown:
    """A page with its form and the command that makes the same, or why there is none, with the
    fields in which that can be mended."""
    try:
        page = make()
    except InputError as error:
        refused = [Text(flat(str(error)), "error"), form]
        return Shown(Page(w, form.buttons[0][0], refused), lab=lab, status=400)
    same = [Text(w("view.same_command"), "soft"), Code(command, "sh")]
    blocks = [*page.blocks, form, *same]
    return Shown(Page(w, page.title, blocks, page.footer, page.document), lab=lab)


def _flags(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [word for name, value in pairs if value for word in (f"--{name}", value)]


def _both_answers(lab: str, sides: Sequence[Line], item: str) -> str:
    """The page of an item with the answers of two records."""
    records = [
        f"{side.run}/{side.file.parent.name}/{side.file.stem}"
        for side in sides
        if side.run is not None and side.file is not None
    ]
    return lab_address(lab, "item", item=item, of=records) if len(records) == len(sides) else ""


def names_of(request: Request) -> list[str]:
    """The runs and files that an address names, by tick or in one field, quoted as in a shell.

    Raises InputError for a quotation mark without its fellow.
    """
    try:
        names = [n for text in request.query_params.getlist("run") for n in shlex.split(text)]
    except ValueError as error:
        fix = "write 'a name with spaces' between quotation marks"
        raise InputError(f"cannot be read: {error}", field="run", fix=fix) from error
    return list(dict.fromkeys(names))


def within(root: Path, name: str) -> str:
    """A run's name as it is, and a file's as its path. Raises InputError for one outside the lab:
    an address opens nothing else."""
    file, run = file_and_run(str(root / name))
    if not (is_file(str(root / name)) or file.suffix == ".toml"):
        return name
    if not file.resolve().is_relative_to(root.resolve()):
        fix = f"move it below {root}, or use the verb"
        raise InputError(f"{name!r} lies outside the lab", field="run", fix=fix)
    return str(file) if run is None else f"{file}@{run}"


def matrix_shown(window: Window, request: Request, w: Words) -> Shown:
    """A sweep file, or runs pivoted by their keys."""
    lab, asked = request.path_params["lab"], request.query_params
    root, names = window.root(lab), names_of(request)
    one = ("rows", "columns", "checkpoint", "baseline", "select")
    several = ("layers", "on", "allow")
    values: dict[str, Any] = {name: asked.get(name) or None for name in one}
    values |= {name: tuple(asked.get(name, "").split()) for name in several}
    fields = [Field("run", w("view.compared"), shlex.join(names))]
    fields += [
        Field(name, w(f"view.{name}"), asked.get(name, ""))
        for name in ("rows", "columns", "layers", "on", "checkpoint", "baseline", "select", "allow")
    ]
    form = Form(
        lab_address(lab, "matrix"), fields, [(w("view.matrix"), lab_address(lab, "matrix"))]
    )
    if not names or not (values["rows"] or names[0].endswith(".toml")):
        return Shown(Page(w, w("view.matrix"), [Text(w("view.matrix_needs")), form]), lab=lab)

    def made() -> Page:
        what = [within(root, name) for name in names]
        return matrix_page(make_matrix(root, what, MatrixRequest(**values)), root, w)

    flags = [(name, values[name] or "") for name in one]
    flags += [(name, value) for name in several for value in values[name]]
    return _made(lab, made, form, shlex.join(["assay", "matrix", *names, *_flags(flags)]), w)


def notebook_shown(window: Window, request: Request, w: Words) -> Shown:
    """The notebook of a lab, its latest entries first, or the entry of one run."""
    lab, name = request.path_params["lab"], request.query_params.get("run", "")
    root, title = window.root(lab), w("log.title", lab=lab)
    if name:
        return Shown(Page(w, title, notebook_blocks(root, window.run(lab, name), w)), lab=lab)
    every, page = dated_entries(root, w)[::-1], page_number(request)
    blocks = []
    for each in every[(page - 1) * ENTRIES : page * ENTRIES]:
        head, *rest = each.blocks()
        if each.run is not None and isinstance(head, Heading):
            head = Heading(joined(Mark(str(head.line), "", run_address(lab, each.run))), head.level)
        blocks += [head, *rest]
    links = page_links(lab_address(lab, "notebook"), {}, page, ENTRIES, len(every), w)
    return Shown(Page(w, title, [*blocks, *links] or [Text(w("view.no_runs"))]), lab=lab)


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


def lab_costs(window: Window, request: Request, w: Words) -> Shown:
    """What the helper models of every run of a lab cost; no sum, because prices may be in several
    currencies."""
    lab = request.path_params["lab"]
    lines, links, blocks = [], [], list[Block]()
    for run in reversed(all_runs(window.root(lab))):
        try:
            line = line_of_run(run)
        except LedgerUnusable as error:
            blocks.append(Text(flat(str(error)), "error"))
            continue
        lines += [line] if line else []
        links += [f"{run_address(lab, run)}costs"] if line else []
    if lines:
        blocks.append(lines_table("", lines, None, w, links))
    shown = [*blocks, Text(w("view.costs_about" if lines else "view.no_costs"), "soft")]
    return Shown(Page(w, w("view.costs"), shown), lab=lab)


def costs_shown(window: Window, request: Request, w: Words) -> Shown:
    """What the helper models of a run cost."""
    lab, run = run_of(window, request)
    blocks = costs_page(run_costs(run), w)
    doors = [Mark(str(run), "", run_address(lab, run))]
    doors.append(Mark(w("view.all_costs"), "", lab_address(lab, "costs")))
    shown = [Text(joined(*doors, by=" · ")), *blocks]
    return Shown(Page(w, w("view.costs_of", run=run.name), shown), lab=lab)
