"""One completion in whole, or several side by side.

A conversation is shown message by message with its calls, and thoughts are folded.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from starlette.requests import Request

from assay.data.row import Message, Row
from assay.errors import AssayError, InputError
from assay.lab.data.prepare import rows_by_id
from assay.pages.examples import asked, item_rows, shortened
from assay.pages.page import (
    Answer,
    Block,
    Code,
    Facts,
    Folded,
    Heading,
    Line,
    Mark,
    Page,
    SideBySide,
    Text,
    joined,
)
from assay.pages.words import Words, flat, number
from assay.runs.history import History, find_record, find_samples
from assay.runs.manifest_file import read_manifest
from assay.runs.records import outcome, stored_messages, transcript
from assay.runs.run_directory import RunDirectory
from assay.view.frame import Shown, lab_address, run_address
from assay.view.window import Window


@lru_cache(maxsize=64)
def rows_at(run: RunDirectory, place: str, answers: bool) -> Mapping[str, Row]:
    """The rows of a stage, or the items of an evaluation (`place`), by id, from their source."""
    if answers:
        return item_rows(run, place)
    experiment = History(run).experiment
    return rows_by_id(experiment, experiment.stage[place].data.partition(".")[0], run.root)


THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
MOST_SIDES = 64
"""Completions that stand side by side."""


def sample_page(window: Window, request: Request, w: Words) -> Shown:
    """What `assay report RUN:ID` shows; of several ids, all that they mean. Raises InputError for
    an id that leads nowhere."""
    lab, lines = request.path_params["lab"], []
    for id_ in request.query_params.getlist("id") or [""]:
        name, colon, rest = id_.partition(":")
        if not colon:
            raise InputError(f"{id_!r} names no sample", field="id", fix="write NAME/ID:SAMPLE")
        run = window.run(lab, name)
        lines += [(run, line) for line in find_samples(run, rest)]
    runs = dict.fromkeys(run for run, _ in lines)
    doors = (Mark(str(run), "", run_address(lab, run)) for run in runs)
    blocks: list[Block] = [Text(joined(*doors, by=" · "))]
    run, first = lines[0]
    if len(lines) == 1:
        blocks += _whole(lab, run, first, w)
    else:
        row, problem = _row_of(run, first, w)
        question, gold = asked(row)
        answers = [_side(lab, run, line, len(runs) > 1, w) for run, line in lines[:MOST_SIDES]]
        blocks += [*problem, SideBySide("", question, answers, gold, w("page.gold"))]
    title = first["sample_id"] if len(lines) == 1 else first["sample_id"].rpartition("#")[0]
    return Shown(Page(w, title, blocks), lab=lab)


def _side(lab: str, run: RunDirectory, line: Mapping[str, Any], named: bool, w: Words) -> Answer:
    """A completion beside others; `named` says that they are of several runs."""
    figures = [f"{name}{w.colon}{value}" for name, value in _figures(line, w)]
    if line.get("messages"):
        thought, text = "", transcript(line["messages"])
    else:
        thought = "\n\n".join(match.strip() for match in THOUGHT.findall(line["text"]))
        text = THOUGHT.sub("", line["text"]).strip("\n")
    _, folder, file = line["file"].split("/")
    place = (
        f"{folder}/{file.removesuffix('.parquet')}/{line['item_id']}#{line['repeat']}"
        if ("score" in line)
        else line["sample_id"]
    )
    own = lab_address(lab, "show", id=f"{run}:{place}")
    title = f"{run.name} · " * named + line["sample_id"]
    result, note = w.semicolon.join(figures[:2]), w.semicolon.join(figures[2:])
    return Answer(title, result, shortened(text), (), note, own, shortened(thought))


def _whole(lab: str, run: RunDirectory, line: Mapping[str, Any], w: Words) -> list[Block]:
    """Figures, the question, the completion, and the commands about it."""
    answer, new = "score" in line, []
    for name, value in (line.get("facts") or {}).items():
        if name not in line["parts"] and str(value) not in ("", line.get("why")):
            new.append((flat(name), shortened(str(value))))
    figures = [*_figures(line, w), *new, (w("view.file"), line["file"])]
    blocks: list[Block] = [Facts(figures), Text(_around(lab, run, line, w))]
    blocks += _question(run, line, w)
    blocks.append(Heading(w("view.completion")))
    messages = conversation(stored_messages(line["messages"]), w) if line.get("messages") else None
    blocks += messages or completion_blocks(line["text"], w)
    show = f"assay report {shlex.quote(f'{run}:' + line['sample_id'])}"
    again = "" if answer else replay_command(run, _stage_of(line), line["step"])
    heading = w("view.replay" if again else "view.command")
    return [*blocks, Heading(heading), Code(f"{again}\n{show}".lstrip(), "sh")]


def replay_command(run: RunDirectory, stage: str, step: int) -> str:
    """The line that judges a step again; "" where a stage learns from no reward."""
    if read_manifest(run).get("stages", {}).get(stage, {}).get("method") == "distill":
        return ""
    return f"assay replay {run} --stage {stage} --step {step}"


def _question(run: RunDirectory, line: Mapping[str, Any], w: Words) -> list[Block]:
    """What was asked, the whole prompt folded, and the accepted answer."""
    row, problem = _row_of(run, line, w)
    if row is None:  # another trainer's sample keeps what was asked where it names no row
        prompt = (line.get("facts") or {}).get("prompt")
        return [Heading(w("view.question")), Code(str(prompt))] if prompt else [*problem]
    question, gold = asked(row)
    blocks: list[Block] = [Heading(w("view.question")), Code(question)]
    tools = json.dumps([*row.tools], ensure_ascii=False, indent=1) if row.tools else ""
    whole = [*conversation(row.prompt, w), *([Code(tools, "json")] if tools else [])]
    if tools or len(row.prompt) > 1:
        blocks.append(Folded(w("view.prompt"), whole))
    return [*blocks, Folded(w("page.gold"), [Code(gold)])] if gold else blocks


def _row_of(run: RunDirectory, line: Mapping[str, Any], w: Words) -> tuple[Row | None, list[Text]]:
    """The row or item that a line answers, or why it cannot be read."""
    answer = "score" in line
    place = find_record(run, line["file"].split("/")[1]).name if answer else _stage_of(line)
    try:
        return rows_at(run, place, answer).get(line["item_id" if answer else "row_id"]), []
    except (AssayError, OSError) as error:
        return None, [Text(w("page.no_questions", why=flat(str(error))), "warning")]


def _stage_of(line: Mapping[str, Any]) -> str:
    """The stage of a sample, by its id."""
    return line["sample_id"].partition("/")[0]


def _figures(line: Mapping[str, Any], w: Words) -> list[tuple[str, str]]:
    score = line["score"] if "score" in line else line["reward"]
    became = outcome(score, line.get("error") or "", line.get("outcome") or "")
    figures = [
        (w("table.score"), w("program_outcome.abstained") if score is None else number(score)),
        (w("table.outcome"), w.or_own("outcome", became)),
    ]
    parts = line["parts"].items()
    figures += [(w("view.part_named", name=flat(name)), number(value)) for name, value in parts]
    if line.get("advantage") is not None:
        figures.append((w("view.advantage"), number(line["advantage"])))
    length = line.get("completion_tokens")
    figures.append((w("view.length"), number(length or len(line["tokens"]) or None)))
    figures.append((w("view.ended"), ended_text(line["ended"], w)))
    figures += [(w("view.why"), line["why"])] if line.get("why") else []
    return figures


def ended_text(ended: str, w: Words) -> str:
    """How a completion ended, where that is known."""
    return w.or_own("view", f"ended_{ended}").removeprefix("ended_") or "–"


def _around(lab: str, run: RunDirectory, line: Mapping[str, Any], w: Words) -> Line:
    """Links to the group of a sample, or to all answers to its item."""
    if "score" in line:
        address = lab_address(lab, "show", id=f"{run}:{line['item_id']}")
        return Mark(w("view.all_answers"), "", address)
    group = lab_address(lab, "show", id=f"{run}:{line['sample_id'].rpartition('#')[0]}")
    every = lab_address(lab, "samples", run=run, row=line["row_id"])
    return joined(Mark(w("view.group"), "", group), Mark(w("view.all_of_row"), "", every), by=" · ")


def completion_blocks(text: str, w: Words) -> list[Block]:
    """A text with its thoughts folded."""
    blocks: list[Block] = []
    end = 0
    for match in THOUGHT.finditer(text):
        blocks += [Code(text[end : match.start()])] if text[end : match.start()].strip() else []
        blocks.append(Folded(w("page.thought"), [Code(match[1].strip("\n"))]))
        end = match.end()
    rest = text[end:].lstrip("\n") if end else text
    return [*blocks, Code(rest)] if rest or not blocks else blocks


def conversation(messages: Sequence[Message], w: Words) -> list[Block]:
    """Each message under its role, its thoughts folded, its calls as calls."""
    blocks: list[Block] = []
    for message in messages:
        blocks.append(Heading(w.or_own("view", f"role_{message.role}"), 4))
        if message.reasoning:
            blocks.append(Folded(w("page.thought"), [Code(message.reasoning)]))
        blocks += completion_blocks(message.content, w) if message.content else []
        for call in message.tool_calls:
            arguments = json.dumps(call.arguments, ensure_ascii=False, indent=1)
            blocks.append(Text((w("view.call"), " ", Mark(call.name, "code"))))
            blocks.append(Code(arguments, "json"))
    return blocks
