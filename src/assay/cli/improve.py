"""`assay improve RUN`: lists the improvements that the run's own records support."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.resume import RunName


def improve(
    root: Path,
    run: RunName,
    lang: Annotated[str, typer.Option(help="Language: en or zh.")] = "en",
) -> Outcome:
    """List what the records of a run say could be done better, ranked, each with its evidence."""
    from assay.lab.improve.find_improvements import find_improvements
    from assay.pages.command_tables.improvement_view import improvement_blocks, improvement_values
    from assay.pages.words import words
    from assay.runs.run_names import find_run, parse_run_name

    w = words(lang)
    found = find_improvements(find_run(root, parse_run_name(run)))
    result = {
        "run": str(found.run),
        "ranking": w("improve.rule"),
        "improvements": [improvement_values(each, w) for each in found.found],
        "looked_at": found.looked_at,
    }
    shown = improvement_blocks(str(found.run), found.found, found.looked_at, w)
    return Outcome(result, shown, lang=lang)
