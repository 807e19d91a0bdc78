"""What a finished run shows: tables, examples, the page; and the same as plain values."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from assay.lab.compare import Line, Pairing, Table
from assay.lab.run_directory import RunDirectory


def run_results(run: RunDirectory, lang: str = "en") -> tuple[dict[str, Any], list[RenderableType]]:
    """Writes the run's page; returns its results for programs and for people."""
    from assay.report.facts import gather
    from assay.report.page import write_report
    from assay.report.terminal import example_panels, final_table, summary_line

    page = write_report(run, lang)
    result = {
        **run_identity(run),
        "report": page,
        "summary": summary_line(run, lang),
        "evaluations": [table_result(m.table) for m in gather(run).reported if m.table is not None],
    }
    shown = [final_table(run, lang), "", example_panels(run, lang), "", summary_line(run, lang)]
    return result, [*shown, f"report: {page}"]


def run_identity(run: RunDirectory) -> dict[str, Any]:
    """Which run, where, and how it stands."""
    from assay.lab.status import read_status

    status = read_status(run.path)
    return {
        "name": run.name,
        "id": run.id,
        "path": run.path,
        "seed": status.seed,
        "status": status.status,
    }


def table_result(table: Table) -> dict[str, Any]:
    """A table without the ids of its items; `parts` says part by part what differs."""
    record = table.evaluation
    return {
        "evaluation": record.name,
        "benchmark": record.benchmark,
        "role": record.role,
        "repeats": record.repeats,
        "allowed": table.allowed,
        "differences": table.differences,
        "parts": {
            state.part: {"kind": table.state(state), "paths": [d.path for d in state.differences]}
            for state in table.parts
        },
        "lines": [line_result(line, table) for line in table.lines],
    }


def line_result(line: Line, table: Table) -> dict[str, Any]:
    """One checkpoint's score with its comparisons."""
    return {
        "checkpoint": line.name,
        "score": line.score,
        "interval": line.interval,
        "items": line.items,
        "repeats": line.repeats,
        "abstained": line.abstained,
        "to_control": pairing_result(line.to_control, table),
        "to_previous": pairing_result(line.to_previous, table),
        "record": line.file,
    }


def pairing_result(pairing: Pairing | None, table: Table) -> Mapping[str, Any] | None:
    """A comparison, its words, and the items that changed, each with what `assay show` takes."""
    if pairing is None:
        return None
    addresses = {line.name: line.address for line in table.lines}
    changed = (*pairing.flips.gained, *pairing.flips.lost)
    sides = {"control": addresses[pairing.control], "other": addresses[pairing.other]}
    return {
        "control": pairing.control,
        "comparison": pairing.comparison,
        "explanation": pairing.explanation(),
        "gained": pairing.flips.gained,
        "lost": pairing.flips.lost,
        "unchanged": len(pairing.flips.unchanged),
        "show": {
            i: {side: a + i for side, a in sides.items()} for i in changed if all(sides.values())
        },
        "agreement": pairing.agreement,
    }
