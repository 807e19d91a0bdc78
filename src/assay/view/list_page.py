"""The browser of a run's completions: samples of training steps, or answers of evaluations.

Every filter stands in the address, so that a link keeps it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from assay.errors import InputError
from assay.pages.content import checkpoint_label
from assay.pages.page import Block, Cell, Column, Field, Form, Mark, Page, Row, Table, Text
from assay.pages.words import Words, flat, number
from assay.runs.run_directory import RunDirectory
from assay.view.completions import CompletionFile, Filter, Stored, read_filter
from assay.view.frame import Shown, full_name, lab_address
from assay.view.runs_page import page_links
from assay.view.sample_page import question_of, title_of
from assay.view.window import Window, live_address

SHOWN = 160
"""Characters of a completion in the list."""


def list_page(window: Window, request: Request, w: Words) -> Shown:
    """The fields of the filter, what it keeps in figures, and one page of it. Raises RunNotFound,
    InputError."""
    lab, name = request.path_params["lab"], request.query_params.get("run", "")
    if not name:
        raise InputError("no run is named", field="run", fix="open the list from a run's page")
    answers = request.url.path.rpartition("/")[2].startswith("answers")
    run, where = window.run(lab, name), read_filter(request.query_params)
    live, completions = live_address(window, [full_name(lab, run)]), window.completions(run)
    kind = "answers" if answers else "samples"
    stored, damaged = completions.stored(answers)
    blocks: list[Block] = [Text(flat(str(error)), "error") for error in damaged]
    blocks.append(_form(lab, run, stored, where, answers, w))
    if not stored:
        blocks.append(Text(w(f"view.no_{kind}")))
    else:
        matches = completions.find(where, answers)
        figures = {
            "count": matches.count,
            "unscored": matches.unscored,
            "mean": number(matches.mean),
        }
        blocks.append(Text(w("view.found", **figures)))
        rows = [_row(lab, run, place, line, w) for place, line in matches.lines]
        blocks += [Table(_columns(answers, w), rows)] if rows else []
        here, last = lab_address(lab, kind, run=run) + "&", -(-matches.count // where.size)
        blocks += page_links(lambda n: here + where.address(page=n), where.page, last, w)
    title = w(f"view.{kind}_of", run=run.name)
    return Shown(Page(w, title, blocks), live, lab, run=run)


def _form(
    lab: str,
    run: RunDirectory,
    stored: Sequence[Stored],
    where: Filter,
    answers: bool,
    w: Words,
) -> Form:
    """The fields of the filter."""
    known = _same(line["outcome"] for each in stored for line in each.lines)
    outcomes = [(outcome, w.or_own("outcome", outcome)) for outcome, _ in known]
    fields = [Field("run", "", str(run), "hidden"), Field("text", w("view.text"), where.text)]
    places = [each.place for each in stored]
    own = _of_answers(places, where, w) if answers else _of_samples(places, where, w)
    fields += [*own, _choice("outcome", where.outcome, outcomes, w)]
    fields += [
        *_range("score", where, w),
        *_range("length", where, w),
        Field("row", w("view.item" if answers else "view.row"), where.row),
    ]
    address = lab_address(lab, "answers" if answers else "samples")
    return Form(address, fields, [(w("view.filter"), address)])


def _of_samples(places: Sequence[CompletionFile], where: Filter, w: Words) -> list[Field]:
    stages = _same(place.stage for place in places)
    return [_choice("stage", where.stage, stages, w), *_range("step", where, w)]


def _of_answers(places: Sequence[CompletionFile], where: Filter, w: Words) -> list[Field]:
    keys = {p.record.key: p.record.name for p in places if p.record}
    own = [p.checkpoint for p in places if p.record and where.evaluation in ("", p.record.key)]
    checkpoints = [(name, checkpoint_label(name, w)) for name in dict.fromkeys(own)]
    return [
        _choice("evaluation", where.evaluation, [*keys.items()], w),
        _choice("checkpoint", where.checkpoint, checkpoints, w),
    ]


def _same(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in dict.fromkeys(sorted(names))]


def _choice(name: str, value: str, choices: Sequence[tuple[str, str]], w: Words) -> Field:
    """A choice; what the address has stays one, so that a changed filter loses nothing."""
    every = [("", w("view.any")), *choices]
    known = {key for key, _ in every}
    return Field(
        name, w.title(name), value, "choice", every + [(value, value)] * (value not in known)
    )


def _range(name: str, where: Filter, w: Words) -> list[Field]:
    ends = ("from", "to")
    values = [getattr(where, f"{name}_{end}") for end in ends]
    return [
        Field(f"{name}_{end}", w(f"view.{name}_{end}"), "" if v is None else f"{v:g}", "number")
        for end, v in zip(ends, values, strict=True)
    ]


def _columns(answers: bool, w: Words) -> list[Column]:
    first = ("item", "checkpoint") if answers else ("row", "step")
    names = [
        *first,
        "score",
        *([] if answers else ["advantage"]),
        "outcome",
        "length",
        "completion",
    ]
    right = ("score", "advantage", "length", "step")
    return [Column(w.title(name), name in right) for name in names]


def _row(
    lab: str,
    run: RunDirectory,
    place: CompletionFile,
    line: Mapping[str, Any],
    w: Words,
) -> Row:
    """One completion: where it stands, what it earned, how it begins."""
    name = f"{line['row']}#{line['number']}"
    # A name of an evaluation may stand for several records; its folder does not.
    id_ = f"{place.record.key}/{place.checkpoint}/{name}" if place.record else line["id"]
    own = lab_address(lab, "show", id=f"{run}:{id_}")
    text = flat(line["text"][: 8 * SHOWN])
    start = Cell(Mark(text[:SHOWN] + "…" * (len(text) > SHOWN) or "–", "", own), kind="start")
    score = w("program_outcome.abstained") if line["score"] is None else number(line["score"])
    outcome = Cell(w.or_own("outcome", line["outcome"]), [line["why"] or ""])
    around, advantage = f"{place.stage}/{place.step}/{line['row']}", [number(line["advantage"])]
    where = Cell(str(place.step), [place.stage])
    if place.record is not None:
        around, advantage = line["row"], []
        where = Cell(checkpoint_label(place.checkpoint, w), [place.record.name])
    address = lab_address(lab, "show", id=f"{run}:{around}")
    title = Mark(title_of(question_of(run, place, line["row"])) or name, "", address)
    length = number(line["length"])
    return [Cell(title, [name]), where, score, *advantage, outcome, length, start]
