"""A matrix as plain values for programs: without scores of items and without folders' internals."""

from typing import Any

from assay.lab.sweep.matrix.model import ArmView, Cell, Margin, Matrix, Recommendation


def matrix_result(found: Matrix) -> dict[str, Any]:
    """Everything that a page shows, by name."""
    return {
        "name": found.name,
        "layout": found.layout,
        "on": found.on,
        "ratios_to": found.ratios_to,
        "baseline": found.baseline,
        "rows": found.rows,
        "columns": found.columns,
        "layers": found.layers,
        "cells": [cell_result(cell) for cell in found.cells.values()],
        "averages": [margin_result(margin) for margin in found.margins],
        "counts": found.tally,
        "arms": [arm_result(arm) for arm in found.arms],
        "overlaps": found.overlaps,
        "recommendation": recommendation_result(found.recommendation),
    }


def cell_result(cell: Cell) -> dict[str, Any]:
    """One cell with the records behind it."""
    sources = [s for part in cell.unit.parts for s in part.sources] if cell.unit else []
    return {
        "place": cell.place,
        "state": cell.state,
        "name": cell.name,
        "score": cell.score,
        "interval": cell.interval,
        "items": cell.items,
        "repeats": cell.repeats,
        "seeds": cell.seeds,
        "seeds_missing": cell.unit.seeds_missing if cell.unit else 0,
        "is_baseline": cell.is_baseline,
        "comparison": cell.comparison,
        "records": [s.record.file(s.run.evaluations, s.checkpoint) for s in sources],
    }


def margin_result(margin: Margin) -> dict[str, Any]:
    """One average."""
    return {
        "key": margin.key,
        "value": margin.value,
        "layer": margin.layer,
        "average": margin.average,
        "change": margin.change,
        "cells": margin.cells,
    }


def arm_result(arm: ArmView) -> dict[str, Any]:
    """One arm, its cells by name."""
    return {
        "key": arm.key,
        "value": arm.value,
        "counts": arm.tally,
        "strengths": [cell.place for cell in arm.strengths],
        "weaknesses": [cell.place for cell in arm.weaknesses],
        "change": arm.change,
    }


def recommendation_result(found: Recommendation) -> dict[str, Any]:
    """The recommended cell, or why there is none."""
    return {
        "chosen": found.reason == "chosen",
        "reason": found.reason,
        "candidate": found.cell.place if found.cell else None,
        "model": found.cell.name if found.cell else None,
        "select": found.select,
        "dev_score": found.dev.mean if found.dev else None,
        "comparison": found.choice.comparison if found.choice else None,
        "looks": found.choice.looks if found.choice else None,
        "optimism": found.choice.optimism if found.choice else None,
        "rivals": [cell.place for cell in found.rivals],
    }
