"""Pages that other verbs make, made on request: comparisons and costs.

The same functions build them; nothing of them is written.
"""

import shlex
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request

from assay.compare.arm import is_file
from assay.compare.compare_names import compare_names
from assay.compare.table import Line
from assay.errors import InputError
from assay.lab.monitor.run_costs import run_costs
from assay.pages.command_tables import costs_page
from assay.pages.comparison_page import comparison_page
from assay.pages.page import Code, Field, Form, Page, Text
from assay.pages.words import Words, flat
from assay.view.runs_page import run_of
from assay.view.window import Shown, Window, lab_address


def compare_page(window: Window, request: Request, w: Words) -> Shown:
    """Runs against the first of them, with the fairness check."""
    lab, query = request.path_params["lab"], request.query_params
    root = window.root(lab)
    names = [*dict.fromkeys(n for text in query.getlist("run") for n in text.split())]
    control, on = (query.get(name) or None for name in ("control", "on"))
    allow = [path for text in query.getlist("allow") for path in text.split()]
    address = lab_address(lab, "compare")
    fields = [
        Field("run", w("view.runs"), " ".join(names)),
        Field("control", w("view.control"), control or ""),
        Field("on", w("table.evaluation"), on or ""),
        Field("allow", w("view.allow"), " ".join(allow)),
    ]
    form = Form(address, fields, [(w("view.compare"), address)])
    if len(names) < 2:
        return Shown(Page(w, w("view.compare"), [Text(w("view.tick_two")), form]), lab=lab)

    flags = [("control", control or ""), ("on", on or ""), *(("allow", path) for path in allow)]
    words = [word for name, value in flags if value for word in (f"--{name}", value)]
    try:
        for name in names:
            if name.endswith(".toml") or is_file(str(root / name)):
                raise InputError(
                    f"{name!r} is a file", field="run", fix="name a run, or use the verb"
                )
        table = compare_names(root, names, control=control, on=on, allow=allow)
        page = comparison_page(table, w, root, partial(_both_answers, lab))
    except InputError as error:  # with the fields in which that can be mended
        refused = [Text(flat(str(error)), "error"), form]
        return Shown(Page(w, w("view.compare"), refused), lab=lab, status=400)
    command = Code(shlex.join(["assay", "compare", *names, *words]), "sh")
    blocks = [*page.blocks, form, Text(w("view.same_command"), "soft"), command]
    return Shown(Page(w, page.title, blocks, page.footer, page.document), lab=lab)


def _both_answers(lab: str, sides: Sequence[Line], item: str) -> str:
    """The page of an item with the answers of two records."""
    records = [
        f"{side.run}:{side.file.parent.name}/{side.file.stem}/{item}"
        for side in sides
        if side.run is not None and side.file is not None
    ]
    return lab_address(lab, "show", id=records) if len(records) == len(sides) else ""


def costs_shown(window: Window, request: Request, w: Words) -> Shown:
    """What the helper models of a run cost."""
    lab, run = run_of(window, request)
    blocks = costs_page(run_costs(run), w)
    return Shown(Page(w, w("view.costs_of", run=run.name), blocks), lab=lab, run=run)
