"""Writes a page as HTML and the same as Markdown beside it."""

from pathlib import Path

from assay.data.files import atomic_write_text
from assay.pages.html import page_html
from assay.pages.markdown import page_markdown
from assay.pages.page import Page


def write_page(page: Page, file: Path) -> Path:
    """Write `file` (.html) and the same as .md beside it; returns `file`. Both are rendered before
    either is written. Raises OSError."""
    texts = {file.with_suffix(".md"): page_markdown(page), file: page_html(page)}
    for target, text in texts.items():
        atomic_write_text(target, text)
    return file
