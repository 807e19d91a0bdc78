"""Curves of one run or of several above one another; a band is the interval of the values."""

from collections.abc import Sequence
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request

from assay.errors import AssayError, InputError
from assay.pages.charts import SMALL, curve_panel
from assay.pages.facts import Curve
from assay.pages.page import Block, Field, Figure, Folded, Form, Heading, Mark, Page, Panels, Text
from assay.pages.story import writer
from assay.pages.words import Words, flat, metric_label
from assay.runs.run_directory import RunDirectory
from assay.train.metric_names import PART
from assay.view.window import Shown, Window, full_name, live_address, named, run_address

COLOURS = 9


def curves_page(window: Window, request: Request, w: Words) -> Shown:
    """The metrics of a stage, all in small or one in large; of the stage that the runs share."""
    query = request.query_params
    lab = request.query_params.get("lab", "")
    names = dict.fromkeys(request.query_params.getlist("run"))
    runs = [(lab, window.run(lab, name)) if lab else named(window, name) for name in names]
    if not runs:
        raise InputError("no run is named", field="run", fix="tick some in the list of runs")
    live = live_address(window, [full_name(lab, run) for lab, run in runs])
    runs, damaged = _readable(window, runs)
    stages = list(dict.fromkeys(s for _, run in runs for s in window.facts(run).metrics))
    if not stages:
        blocks = [*damaged, Text(w("view.no_steps"))]
        return Shown(Page(w, w("view.curves"), blocks), live)
    stage = query.get("stage") or stages[-1]

    def address(metric: str) -> str:
        named = [("run", full_name(lab, run)) for lab, run in runs]
        return "/curves?" + urlencode([*named, ("stage", stage), ("metric", metric)])

    curves = {
        str(run): [c for part in _curves(window, run, stage) for c in part] for _, run in runs
    }
    metrics = list(dict.fromkeys(c.metric for each in curves.values() for c in each))
    metric = query.get("metric", "")
    fields = [Field("run", "", full_name(lab, run), "hidden") for lab, run in runs]
    fields.append(Field("stage", w("table.stage"), stage, "choice", [(s, s) for s in stages]))
    form = Form("/curves", fields, [(w("view.show"), "/curves")])
    legend = Figure(_legend(runs))
    blocks: list[Block] = [*damaged, form, legend, Text(w("view.bands"), "soft")]
    if metric in metrics:
        series = series_of(curves, metric)
        blocks.append(Text(Mark(w("view.all_curves", stage=stage), "", address(""))))
        blocks.append(Heading(_label(metric, w), 2))
        blocks.append(Figure(overlay(series, metric, True, w)))
    else:
        further = {c.metric for _, run in runs for c in _curves(window, run, stage)[1]}
        panels = {e: _panel(series_of(curves, e), e, address(e), w) for e in metrics}
        blocks.append(Panels([panel for name, panel in panels.items() if name not in further]))
        more = [panel for name, panel in panels.items() if name in further]
        blocks += [Folded(w("view.further"), [Panels(more)])] if more else []
    page = Page(w, w("view.curves_of", stage=stage), blocks)
    labs = {lab for lab, _ in runs}
    only = runs[0][1] if len(runs) == 1 else None
    return Shown(page, live, labs.pop() if len(labs) == 1 else "", run=only)


def _readable(
    window: Window, runs: Sequence[tuple[str, RunDirectory]]
) -> tuple[list[tuple[str, RunDirectory]], list[Text]]:
    """The runs whose curves can be drawn, and why others cannot."""
    readable, damaged = [], []
    for lab, run in runs:
        try:
            for stage in window.facts(run).metrics:
                window.facts(run).curves(stage)
            readable.append((lab, run))
        except AssayError as error:  # one damaged run must not hide the others
            damaged.append(Text(flat(str(error)), "error"))
    return readable, damaged


def _curves(window: Window, run: RunDirectory, stage: str) -> tuple[list[Curve], list[Curve]]:
    """The curves of a run's own page, and the metrics that it leaves out."""
    facts = window.facts(run)
    if stage not in facts.metrics:
        return [], []
    return [*facts.curves(stage), *facts.part_curves(stage)], facts.further_curves(stage)


def series_of(by_run: dict[str, list[Curve]], metric: str) -> list[tuple[Curve, str]]:
    """One metric of every run that recorded it, with the class of the run's colour."""
    return [
        (curve, f"c{colour % COLOURS}")
        for colour, curves in enumerate(by_run.values())
        for curve in curves
        if curve.metric == metric
    ]


def _label(metric: str, w: Words) -> str:
    """The name of a metric, or of a part of the reward."""
    part = metric.removeprefix(PART)
    return metric_label(metric, w) if part == metric else w("view.part_named", name=flat(part))


def _panel(series: Sequence[tuple[Curve, str]], metric: str, address: str, w: Words) -> Figure:
    last = writer(metric)(series[0][0].last) if len(series) == 1 else ""
    return Figure(overlay(series, metric, False, w), _label(metric, w), last, link=address)


def overlay(series: Sequence[tuple[Curve, str]], metric: str, large: bool, w: Words) -> Markup:
    """Curves above one another."""
    curves, kinds = zip(*series, strict=True)
    size = (1012, 380) if large else SMALL
    return curve_panel(curves, _label(metric, w), writer(metric), size=size, kinds=kinds)


def _legend(runs: Sequence[tuple[str, RunDirectory]]) -> Markup:
    """The runs by colour, each a way to its page."""
    entry = Markup('<li><i class="swatch c{}"></i> <a href="{}">{}</a></li>')
    entries = [
        entry.format(at % COLOURS, run_address(lab, run), run)
        for at, (lab, run) in enumerate(dict.fromkeys(runs))
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))
