"""Pages that other verbs make, made on request: comparisons, matrices, costs.

The same functions build them; nothing of them is written.
"""

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from assay.compare.compare_names import CompareOptions, compare_names
from assay.compare.foreign_arms import is_file
from assay.compare.table import Line
from assay.errors import InputError
from assay.lab.monitor.run_costs import run_costs
from assay.lab.sweep.matrix.request import Request as MatrixRequest
from assay.lab.sweep.matrix.request import make_matrix
from assay.pages.command_tables.cost_tables import costs_page
from assay.pages.comparison.comparison_page import comparison_page
from assay.pages.matrix.matrix_page import matrix_page
from assay.pages.page import (
    Code,
    Field,
    Form,
    Mark,
    Page,
    Text,
)
from assay.pages.words import Words, flat
from assay.view.frame import Shown, lab_address, run_address
from assay.view.runs_page import run_of
from assay.view.window import Window


def compare_page(window: Window, request: Request, w: Words) -> Shown:
    """Runs against the first of them, with the fairness check."""
    lab, asked = request.path_params["lab"], request.query_params
    root, names = window.root(lab), names_of(request)
    control, on = (asked.get(name) or None for name in ("control", "on"))
    allow = [path for text in asked.getlist("allow") for path in text.split()]
    address = lab_address(lab, "compare")
    fields = [
        Field("run", w("view.compared"), shlex.join(names)),
        Field("control", w("view.control"), control or ""),
        Field("on", w("view.evaluation"), on or ""),
        Field("allow", w("view.allow"), " ".join(allow)),
    ]
    form = Form(address, fields, [(w("view.compare"), address)])
    if len(names) < 2:
        return Shown(Page(w, w("view.compare"), [Text(w("view.tick_two")), form]), lab=lab)

    def made() -> Page:
        for name in names:
            refuse_file(root, name)
        table = compare_names(root, names, CompareOptions(control, on, tuple(allow)))
        return comparison_page(table, w, root, partial(_both_answers, lab))

    flags = [("control", control or ""), ("on", on or ""), *(("allow", path) for path in allow)]
    return _made(lab, made, form, shlex.join(["assay", "compare", *names, *_flags(flags)]), w)


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


def refuse_file(root: Path, name: str) -> None:
    """Raise InputError for a file: an address opens nothing but runs of the lab."""
    if name.endswith(".toml") or is_file(str(root / name)):
        raise InputError(f"{name!r} is a file", field="run", fix="name a run, or use the verb")


def matrix_shown(window: Window, request: Request, w: Words) -> Shown:
    """Runs pivoted by their keys."""
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
    if not names or not values["rows"]:
        return Shown(Page(w, w("view.matrix"), [Text(w("view.matrix_needs")), form]), lab=lab)

    def made() -> Page:
        for name in names:
            refuse_file(root, name)
        return matrix_page(make_matrix(root, names, MatrixRequest(**values)), root, w)

    flags = [(name, values[name] or "") for name in one]
    flags += [(name, value) for name in several for value in values[name]]
    return _made(lab, made, form, shlex.join(["assay", "matrix", *names, *_flags(flags)]), w)


def costs_shown(window: Window, request: Request, w: Words) -> Shown:
    """What the helper models of a run cost."""
    lab, run = run_of(window, request)
    blocks = costs_page(run_costs(run), w)
    shown = [Text(Mark(str(run), "", run_address(lab, run))), *blocks]
    return Shown(Page(w, w("view.costs_of", run=run.name), shown), lab=lab)
