"""Sequential comparisons: judged again by the anytime-valid test, every look recorded.

The test needs neither a plan nor the number of looks; they are recorded so that a reader sees how
often the runs were compared before the verdict fell.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.compare.fairness import Unfair
from assay.compare.table import Line, Table
from assay.data.files import append_line
from assay.errors import finding
from assay.judge.anytime import compare_anytime
from assay.judge.families import adjust_family
from assay.judge.scores import on_one_scale
from assay.judge.verdict import Comparison, not_comparable, with_lower_better
from assay.runs.run_files import DamagedFile, whole_lines

LOOKS = "looks.jsonl"
"""In the folder of comparisons: a line for each look."""


def judged_sequentially(table: Table) -> Table:
    """The table with every comparison with the control made by the anytime-valid test.

    Raises Unfair for several training seeds: the test is of checkpoints on items.
    """
    changed = [line for line in table.lines if line.to_control is not None]
    again = {line.name: _again(table.control, line) for line in changed}
    judged = adjust_family(again)
    lines = [
        replace(line, to_control=replace(line.to_control, comparison=judged[line.name]))
        if line.to_control is not None
        else line
        for line in table.lines
    ]
    return replace(table, lines=tuple(lines))


def _again(control: Line, line: Line) -> Comparison:
    assert line.to_control is not None and line.scores is not None and control.scores is not None
    before = line.to_control.comparison
    if "seeds" in before.method:
        fix = "name one run of each, such as NAME#SEED"
        raise Unfair("several seeds are not compared sequentially", field="--sequential", fix=fix)
    first, last = on_one_scale(control.scores, line.scores)
    found = replace(compare_anytime(first, last), noise=before.noise)
    if before.lower_is_better:
        found = with_lower_better(found)
    return not_comparable(found, before.confounds) if before.confounds else found


def note_look(folder: Path, table: Table) -> Table:
    """Record this look in `folder`; the table with a note of all looks at these runs.

    The same runs on the same number of items are the same look. Raises DamagedFile.
    """
    file, key = folder / LOOKS, _key(table)
    looks = [line["items"] for line in _lines(file) if {n: line.get(n) for n in key} == key]
    items = table.control.items
    if items not in looks:
        looks.append(items)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        folder.mkdir(parents=True, exist_ok=True)
        append_line(file, json.dumps({"at": at, **key, "items": items}, ensure_ascii=False))
    listed = ", ".join(map(str, looks))
    found = finding("sequential_look", "note", count=len(looks), listed=listed)
    return replace(table, findings=(*table.findings, found))


def _key(table: Table) -> dict[str, Any]:
    """What a sequential comparison is of: a record of more items is another look at it."""
    names = [line.name for line in table.lines]
    return {"benchmark": table.evaluation.benchmark, "control": names[0], "others": names[1:]}


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    found = whole_lines(file)
    for number, line in enumerate(found, 1):
        if not isinstance(line.get("items"), int):
            raise DamagedFile("is no look: it has no number of items", file=file, line=number)
    return found
