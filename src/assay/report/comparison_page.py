"""Writes the page of a comparison, HTML and Markdown side by side.

Like the page of a run it needs nothing but itself. Links lead to the records that the numbers come
from and are relative, so that a lab's folder can be moved as a whole.
"""

import re
from importlib.metadata import version
from pathlib import Path

from assay.compare.table import Table
from assay.data.files import atomic_write_text
from assay.errors import InputError
from assay.report.comparison_content import comparison_values
from assay.report.templating import environment
from assay.report.words import words

FOLDER = "comparisons"
TEMPLATES = {".html": "comparison.html.j2", ".md": "comparison.md.j2"}
LONGEST_NAME = 120


class PageName(InputError):
    """A page cannot be written there."""


def write_comparison(table: Table, root: Path, page: Path | None = None, lang: str = "en") -> Path:
    """Write `page` (.html) and the same as .md beside it; returns the HTML page.

    Omitted, they lie under `comparisons/` in the lab's root, named after runs and evaluation, and
    the same comparison made again replaces them. Raises UnknownLanguage, PageName.
    """
    w = words(lang)
    target = page_file(table, root, page)
    values = {**comparison_values(table, w, target.parent), "w": w, "version": version("assay-lab")}
    texts = {
        target.with_suffix(suffix): environment().get_template(template).render(values)
        for suffix, template in TEMPLATES.items()
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            atomic_write_text(file, text)
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}"
        raise PageName(problem, field="--page", fix="name another folder") from error
    return target


def page_file(table: Table, root: Path, page: Path | None) -> Path:
    """Where the HTML page goes. Raises PageName for a file of another kind."""
    if page is None:
        return (root / FOLDER / page_name(table)).with_suffix(".html").resolve()
    if page.is_dir():
        return (page / page_name(table)).with_suffix(".html").resolve()
    if page.suffix != ".html":
        raise PageName(f"{page} is not a .html file", field="--page", fix="write FILE.html")
    return page.resolve()


def page_name(table: Table) -> str:
    """`other-vs-control-on-evaluation`, of names that any file system takes."""
    control, *others = [
        re.sub(r"/[^@]*", "", line.name) if line.address else line.name for line in table.lines
    ]
    name = f"{'-'.join(others)}-vs-{control}-on-{table.evaluation.name}"
    # No dot may be left: what follows it would be taken for the suffix.
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:LONGEST_NAME]
