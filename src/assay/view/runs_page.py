"""The list of all runs, and the page of one: what `assay report` writes, live, with its doors."""

from collections.abc import Callable
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from assay.errors import AssayError
from assay.lab.monitor.progress import progress
from assay.lab.monitor.stage_health import planned_steps
from assay.pages.content import checkpoint_label, interval_text
from assay.pages.facts import gather
from assay.pages.page import Block, Cell, Column, Field, Form, Line, Mark, Page, Table, Text
from assay.pages.progress_content import progress_blocks, progress_title
from assay.pages.run_page import run_page
from assay.pages.words import Words, flat, number, score_text
from assay.runs.history import leaving_out, left_out
from assay.runs.registry import damage
from assay.runs.run_directory import RunDirectory, Status, read_status, unnameable
from assay.runs.run_names import RunNotFound
from assay.view.window import Shown, Window, full_name, lab_address, live_address, run_address

SHOWN = 30
"""Runs of one page of the list."""
STATES = {"running": "chosen", "finished": "plain", "interrupted": "warning", "failed": "error"}
"""State -> the kind of its mark."""


def runs_page(window: Window, request: Request, w: Words) -> Shown:
    """The runs of all labs, the latest first, with ticks to compare some of them."""
    live, wanted = live_address(window, []), request.query_params.get("text", "").strip()
    every = [pair for pair in window.everywhere() if wanted.lower() in str(pair[1]).lower()]
    text = request.query_params.get("page", "1")
    page = max(int(text), 1) if text.isdecimal() and len(text) < 7 else 1
    some = every[(page - 1) * SHOWN : page * SHOWN]
    search = Form("/", [Field("text", w("view.name_has"), wanted)], [(w("view.search"), "/")])
    labs = w.listing.join(f"{name} ({root})" for name, root in window.labs.items())
    blocks: list[Block] = [Text(labs, "soft"), search]
    unnamed = [path for root in window.labs.values() for path in unnameable(root)]
    if unnamed:
        blocks.append(Text(w("view.unnameable", paths=w.listing.join(unnamed)), "warning"))
    if not every:
        blocks.append(Text(w("view.no_runs")))
    for lab in window.labs:
        own = [run for name, run in some if name == lab]
        if own:
            blocks += _of_lab(window, lab, own, w)
    hidden = [("text", wanted)] if wanted else []
    last = -(-len(every) // SHOWN)
    blocks += page_links(lambda n: "/?" + urlencode([*hidden, ("page", n)]), page, last, w)
    only = next(iter(window.labs)) if len(window.labs) == 1 else ""
    return Shown(Page(w, w("view.runs"), blocks, document=w("view.title")), live, only)


def page_links(address: Callable[[int], str], page: int, last: int, w: Words) -> list[Block]:
    """Links to the pages before and behind one; nothing where there is only one."""
    line: list[str | Mark] = [w("view.page_of", page=page, pages=last)]
    for kind, other in (("earlier", page - 1), ("later", page + 1)):
        if 1 <= other <= last:
            line += ["  ", Mark(w(f"view.{kind}"), kind, address(other))]
    return [Text(line)] if last > 1 else []


def _of_lab(window: Window, lab: str, runs: list[RunDirectory], w: Words) -> list[Block]:
    heads = ["run", "state", "progress", "score", "verdict", "started"]
    columns = [Column(w.title(name), right=name == "score") for name in heads]
    rows = [run_row(window, lab, run, w) for run in runs]
    buttons = [(w("view.curves"), "/curves"), (w("view.compare"), lab_address(lab, "compare"))]
    table = Table(columns, rows, lab if len(window.labs) > 1 else "")
    form = Form("/curves", [Field("lab", "", lab, "hidden")], buttons, [table])
    if len(window.labs) == 1:
        return [form]
    return [form, Text(Mark(w("view.compare"), "", lab_address(lab, "compare")))]


def run_row(window: Window, lab: str, run: RunDirectory, w: Words) -> list[Cell | Line]:
    """A run in the list: state, stage and progress, the last score and its verdict."""
    tick = Field("run", str(run), str(run), "tick")
    mark = Mark(run.name, "", run_address(lab, run))
    name = Cell(mark, [run.id], field=tick)
    try:
        why = damage(run)
        if why:
            return [name, Mark(w("view.damaged"), "error"), Cell(why, span=4)]
        status = read_status(run.path)
        name = Cell(mark, [f"{run.id} · {w('view.seed', seed=status.seed)}"], field=tick)
        state = Cell(Mark(w(f"status.{status.status}"), STATES[status.status]), [status.message])
        score, verdict = last_verdict(window, run, w)
        started = status.started.replace("T", " ")[:16]
        return [name, state, progress_cell(window, run, status, w), score, verdict, started]
    except AssayError as error:  # one damaged run must not hide the others
        return [name, Mark(w("view.damaged"), "error"), Cell(str(error), span=4)]


def progress_cell(window: Window, run: RunDirectory, status: Status, w: Words) -> Cell:
    """The stage that the run is at, and how far it is."""
    facts = window.facts(run)
    stages = [*facts.experiment.stage]
    if status.stage not in stages:
        return Cell("–")
    place = w("view.stage_of", n=stages.index(status.stage) + 1, all=len(stages))
    planned = planned_steps(facts.history, status.stage)
    step = number(status.step) + (f" / {number(planned)}" if planned else "")
    below = [place] if len(stages) > 1 else []
    return Cell(f"{status.stage} · {w('chart.step')} {step}", below)


def last_verdict(window: Window, run: RunDirectory, w: Words) -> tuple[Cell, Cell]:
    """The score of the last checkpoint that was measured, and the verdict on it."""
    main = window.facts(run).main
    table = main.table if main else None
    if main is None or table is None:
        return Cell("–"), Cell("–")
    line = table.lines[-1]
    label = w("view.measured_on", checkpoint=checkpoint_label(line.name, w), evaluation=main.name)
    score = Cell(score_text(line.score, line.interval), [interval_text(line.interval, w), label])
    if line.to_control is None:
        return score, Cell("–")
    verdict = line.to_control.comparison.verdict
    against = w("view.against", control=checkpoint_label(table.control.name, w))
    return score, Cell(Mark(w(f"verdict_name.{verdict}"), verdict), [against])


def run_of(window: Window, request: Request) -> tuple[str, RunDirectory]:
    """The run that an address names. Raises RunNotFound."""
    parts = request.path_params
    return parts["lab"], window.run(parts["lab"], f"{parts['name']}/{parts['id']}")


def run_shown(window: Window, request: Request, w: Words) -> Shown:
    """The page of a run, live while it trains."""
    lab, run = run_of(window, request)
    live, status = live_address(window, [full_name(lab, run)]), 200
    try:
        with leaving_out(run):
            # What other pages read as well must not lack it in silence.
            facts = gather(run) if left_out() else window.facts(run)
            whole = run_page(facts, w, None)
    except AssayError as error:  # what else the run recorded can still be read
        whole, status = Page(w, run.name, [Text(flat(str(error)), "error")]), 400
    page = Page(w, whole.title, whole.blocks, whole.footer, whole.document, True)
    return Shown(page, live, lab, status, run=run)


def progress_shown(window: Window, request: Request, w: Words) -> Shown:
    """What changed in the last stage: made on request, because it counts in all samples."""
    lab, run = run_of(window, request)
    table = progress(run)
    title = progress_title(table, w) if table else w("view.progress")
    blocks = progress_blocks(table, w) if table else [Text(w("view.no_steps"))]
    return Shown(Page(w, title, blocks), lab=lab, run=run)


def file_address(window: Window, request: Request, w: Words) -> Response:
    """Where the files of a run are read: pages name records by their path."""
    lab, run = run_of(window, request)
    match request.path_params["file"].split("/"):
        case ["evaluations", key, record] if record.endswith(".parquet"):
            query = {"run": run, "evaluation": key, "checkpoint": record.removesuffix(".parquet")}
            return RedirectResponse(lab_address(lab, "answers", **query), 303)
        case ["samples", stage, file] if file.startswith("step-"):
            step = file.removeprefix("step-").removesuffix(".parquet").lstrip("0")
            query = {"run": run, "stage": stage, "step_from": step, "step_to": step}
            return RedirectResponse(lab_address(lab, "samples", **query), 303)
        case [file] if file.startswith("report."):
            return RedirectResponse(run_address(lab, run), 303)
    raise RunNotFound(f"{run} has no page {request.path_params['file']!r}", fix="open its own")
