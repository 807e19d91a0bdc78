"""Writes the pages of a matrix: `matrices/NAME/matrix.html` and `matrix.md` under the lab's root.

Every score links to the record that it was computed from. Nothing is computed here.
"""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from assay.compare.arm import Provenance
from assay.lab.sweep.matrix.model import Matrix
from assay.pages.matrix import matrix_view as view
from assay.pages.matrix.heat_map import heat_map
from assay.pages.matrix.matrix_changes import block_caveats, block_views
from assay.pages.matrix.matrix_training import data_view, training_views
from assay.pages.templating import write_pages
from assay.pages.words import Words, in_language, named_tests, visible, words

FOLDER = "matrices"


def write_matrix(matrix: Matrix, root: Path, lang: str = "en") -> Path:
    """Write both pages; returns the HTML page. Raises UnknownLanguage."""
    folder = root / FOLDER / matrix.name
    values = page_values(matrix, folder, words(lang))
    return write_pages(in_language(folder / "matrix.html", lang), "matrix", values)


def page_values(matrix: Matrix, folder: Path, w: Words) -> dict[str, Any]:
    """Everything that the templates write."""
    return {
        "w": w,
        "version": version("assay-lab"),
        "matrix": matrix,
        "name": visible(matrix.name),
        "about": visible(matrix.about),
        "chips": chips(matrix, w),
        "columns": view.column_labels(matrix, w),
        "leaf": view.leaf_names(matrix),
        "layers": view.layer_views(matrix, w),
        "heat": heat_maps(matrix, w),
        "nested": view.nested_values(matrix),
        "commands": view.commands(matrix),
        "tally": view.tally_lines(matrix.tally, matrix, w),
        "blocks": block_views(matrix, w),
        "block_caveats": block_caveats(matrix, w),
        "trainings": training_views(matrix, w),
        "data_files": data_view(matrix, w),
        "overlaps": view.overlap_lines(matrix, w),
        "arms": view.arm_views(matrix, w),
        "recommendation": view.recommendation_view(matrix, w),
        "listed": listed(matrix, folder, w),
        "plot": "" if matrix.ratios_to else view.drawn_cells(matrix, w),
        "notes": view.note_lines(matrix, w),
        "methods": method_lines(matrix, w),
    }


def heat_maps(matrix: Matrix, w: Words) -> list[tuple[str, Markup]]:
    """One figure for each layer with its title; none where nothing was measured."""
    if not matrix.measured:
        return []
    titles = {layer: view.layer_title(layer, matrix, w) for layer in matrix.layers}
    return [(title, heat_map(matrix, layer, w)) for layer, title in titles.items()]


def chips(matrix: Matrix, w: Words) -> list[tuple[str, str]]:
    """The matrix in a line."""
    layout = matrix.layout
    found = [
        (w("matrix.rows"), layout.rows),
        (w("matrix.columns"), layout.columns or ""),
        (w("matrix.layers"), w.listing.join(layout.layers)),
        (w("table.evaluation"), w.listing.join(matrix.on)),
        (w("matrix.baseline"), matrix.baseline or w("matrix.no_baseline_named")),
    ]
    return [(label, visible(value)) for label, value in found if value]


def listed(matrix: Matrix, folder: Path, w: Words) -> list[dict[str, Any]]:
    """Every measured cell with its records, interval and comparison."""
    scale = view.scale_of(matrix.measured)
    return [
        {
            **view.cell_view(cell, matrix, w),
            "anchor": view.anchor(cell, matrix),
            "place": view.place_text(cell.place, matrix, w),
            "graph": "" if matrix.ratios_to else view.graph(cell, scale),
            "sources": [source_link(origin, folder) for origin in cell.origins],
        }
        for cell in matrix.measured
    ]


def source_link(origin: Provenance, folder: Path) -> dict[str, str]:
    """The name of a record and its relative path from the page."""
    return {
        "text": visible(f"{origin} · {origin.record.name}"),
        "href": quote(Path(os.path.relpath(origin.file, folder)).as_posix()),
    }


def method_lines(matrix: Matrix, w: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    tests = named_tests([c.comparison.method for c in matrix.measured if c.comparison], w)
    said = [w("matrix.method_score")]
    if matrix.ratios_to:
        pairs = w.listing.join(f"{name} {value:g}" for name, value in matrix.ratios_to.items())
        said.append(w("matrix.method_ratio", pairs=visible(pairs)))
    if tests:
        said.append(w("matrix.method_tests", tests=tests, count=matrix.tally.compared))
    return [*said, w("matrix.method_averages"), w("methods.three"), w("matrix.method_select")]
