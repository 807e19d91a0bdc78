"""What verbs show of a run, a comparison or a file of scores, as tables and as values for `--json`.

Every figure comes from the packages below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from assay.cli.output import taken
from assay.compare.table import ComparisonTable, Pairing
from assay.judge.verdict import as_scored
from assay.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from assay.compare.table import JudgedBy
    from assay.lab.monitor.progress import Progress
    from assay.library.typed_results import Run
    from assay.pages.page import Block
    from assay.pages.run_page import ProgressSpan


def run_result(handle: "Run", span: "ProgressSpan | None" = None) -> dict[str, Any]:
    """The results of a run that has its page, for programs; `span` selects the steps whose progress
    is told."""
    from assay.pages.run_page import ProgressSpan
    from assay.runs.history import left_out

    run, lang, steps = handle.directory, handle.lang, span or ProgressSpan()
    told = handle.progress(steps.stage, steps.first, steps.last)
    return {
        **run_identity(run),
        "report": handle.page,
        "summary": handle.summary,
        "progress": progress_result(told, lang) if told else None,
        "evaluations": [table_result(table) for table in handle.evaluations.values()],
        "left_out": [str(error) for error in left_out()],
    }


DEEDS = {
    "started": "finished",
    "resumed": "resumed and finished",
    "measured": "was finished already; measured on what it lacked, and nothing was trained again",
    "left alone": "was finished already; nothing was trained again",
    "page written": "was finished; its page is written now",
}
"""What was done with a run, for people."""


def runs_shown(
    made: "Sequence[Run]", full: bool, span: "ProgressSpan | None" = None
) -> "list[Block]":
    """The results of runs for people, each with what was done, or its status: a few lines, or all
    of them if `full`. A `span` of steps shows their progress."""
    from assay.pages.page import Text
    from assay.pages.progress_content import progress_report
    from assay.pages.run_terminal import ending, final_blocks
    from assay.pages.words import words

    lang, w = made[0].lang, words(made[0].lang)
    shown: list[Block] = []
    for each in made:
        told = each.progress(span.stage, span.first, span.last) if span else None
        shown += [*progress_report(told, w), Text("")] if told else []
        if full:
            shown += [*final_blocks(each.directory, lang), Text("")]
    states = [DEEDS.get(each.did) or w(f"status.{each.status}") for each in made]
    return [*shown, *ending([(r.directory, s) for r, s in zip(made, states, strict=True)], lang)]


def bfcl_results(run: RunDirectory, folder: Path) -> tuple[dict[str, Any], list[RenderableType]]:
    """Writes the run's answers for `bfcl evaluate`; returns the files and how it is called."""
    from assay.labs.tools.bfcl_results import MODEL, is_category, write_results
    from assay.runs.history import reported_answers

    files = list(write_results(str(run), reported_answers(run, is_category), folder))
    results = sorted({file.parents[2].resolve() for file in files})
    commands = [
        f"bfcl evaluate --model {MODEL} --partial-eval --result-dir {each} --score-dir {each}"
        for each in results
    ]
    result = {**run_identity(run), "files": files, "commands": commands}
    return result, [*(f"wrote {file}" for file in files), *commands]


def run_identity(run: RunDirectory) -> dict[str, Any]:
    """The name, folder and status of a run."""
    from assay.runs.run_directory import read_sink_states, read_status

    status = read_status(run.path)
    return {
        **taken(run, "name", "id", "path"),
        **taken(status, "seed", "status"),
        "sinks": read_sink_states(run.path).states,
    }


def progress_result(progress: "Progress", lang: str = "en") -> dict[str, Any]:
    """The progress of a stage as plain values, findings in words."""
    from assay.pages.words import worded, words

    w = words(lang)
    return {
        **taken(progress, "stage", "planned", "forecasts", "spending"),
        **taken(progress, "checkpoints", "selection", "facts"),
        "from": progress.first,
        "to": progress.last,
        "metrics": [{**asdict(row), "moved": row.moved} for row in progress.rows],
        "findings": [
            {"rule": d.code, "new": d.code in progress.new, **asdict(worded(d, w))}
            for d in progress.findings
        ],
        "gone": sorted(progress.gone),
        "conditions": progress.states,
    }


def table_result(table: ComparisonTable) -> dict[str, Any]:
    """A table without the ids of its items; `parts` says part by part what differs."""
    record = table.evaluation
    return {
        "evaluation": record.name,
        **taken(record, "benchmark", "role", "repeats"),
        **taken(table, "allowed", "differences"),
        "parts": {
            state.part: {"kind": table.state(state), "paths": [d.path for d in state.differences]}
            for state in table.parts
        },
        "lines": [
            {
                "checkpoint": line.name,
                **taken(line, "score", "interval", "items", "part_of", "clusters", "repeats"),
                **taken(line, "abstained", "possible", "limits", "truncated", "sampled"),
                "to_control": pairing_result(line.to_control, table),
                "to_previous": pairing_result(line.to_previous, table),
                "record": line.file,
            }
            for line in table.lines
        ],
        **taken(table, "picked"),
        "judge": table.judge and judge_result(table.judge),
    }


def judge_result(judge: "JudgedBy") -> dict[str, Any]:
    """How far a judge agrees with people."""
    if (held := judge.held) is None:
        return {"held": None}
    known = taken(held.stored, "kind", "model", "labels", "least_kappa")
    known["answers"] = len(held.stored.judged)
    return {"held": {**known, **taken(held, "trust", "kappas")}}


def pairing_result(pairing: Pairing | None, table: ComparisonTable) -> Mapping[str, Any] | None:
    """A comparison, its explanation, and the `assay report` addresses of changed items."""
    from assay.pages.words import words

    if pairing is None:
        return None
    addresses = {line.name: line.address for line in table.lines}
    changed = (*pairing.flips.gained, *pairing.flips.lost)
    sides = {"control": addresses[pairing.control], "other": addresses[pairing.other]}
    return {
        **taken(pairing, "control", "comparison", "agreement"),
        **taken(pairing.comparison, "resolution", "worst_case"),
        "as_scored": as_scored(pairing.comparison),
        "explanation": pairing.explanation(words().verdicts),
        **taken(pairing.flips, "gained", "lost"),
        "unchanged": len(pairing.flips.unchanged),
        "show": {
            i: {side: a + i for side, a in sides.items()} for i in changed if all(sides.values())
        },
    }
