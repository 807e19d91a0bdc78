"""The rows behind completions, read again from their sources, which records do not repeat."""

from collections.abc import Mapping

from assay.data.row import Row
from assay.errors import AssayError
from assay.lab.setup.prepare import rows_by_id
from assay.pages.examples import item_rows
from assay.pages.page import Text
from assay.pages.words import Words, flat
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
from assay.view.window import Window


def row_behind(
    window: Window, run: RunDirectory, place: str, id_: str, answers: bool, w: Words
) -> tuple[Row | None, list[Text]]:
    """A row of a stage, or an item of an evaluation (`place`), or why it cannot be read."""

    def read() -> Mapping[str, Row]:
        if answers:
            return item_rows(run, place)
        experiment = History(run).experiment
        return rows_by_id(experiment, experiment.stage[place].data.partition(".")[0], run.root)

    try:
        return window.rows.get((run, place, answers), None, read).get(id_), []
    except (AssayError, OSError) as error:
        return None, [Text(w("page.no_questions", why=flat(str(error))), "warning")]
