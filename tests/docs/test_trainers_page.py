"""The page of other trainers is the translation tables themselves."""

from assay.trainers.reference import page
from tests.docs.pages import DOCS


def test_the_page_is_current() -> None:
    text = (DOCS / "trainers.md").read_text(encoding="utf-8")
    assert text == page(), "python -m assay.trainers.reference > docs/trainers.md"
