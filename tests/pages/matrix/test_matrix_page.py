"""The page of a matrix says what the matrix says, links every score, and nothing in it can act."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from assay.lab.sweep.model import Matrix
from assay.pages.matrix_page import write_matrix
from assay.pages.words import percent, points
from tests.lab.pivot_lab import DEV, LAST, make_pivot_lab, ones, score
from tests.pages.pages import Page

BATCH, RATE = "stage.sft.batch", "stage.sft.optimizer.lr"
EVIL = '<script>alert(1)</script>"|x'
SWEEP = f"""\
name = "g"
about = '{EVIL}'
base = "base.toml"
on = ["test"]
baseline.where = {{ "{BATCH}" = 4 }}
[axes]
{BATCH} = [4, 8]
{RATE} = [1e-5, 2e-5]
"""


def make_matrix(root: Path, sweep: str = SWEEP) -> Matrix:
    """Of three runs in four cells."""
    lab = make_pivot_lab(root)
    for index, (batch, rate) in enumerate([(4, 1e-5), (4, 2e-5), (8, 1e-5)]):
        run = lab.run(f"g.batch-{batch}.lr-{rate}", f"{BATCH}={batch}", f"{RATE}={rate}")
        score(run, LAST, ones(20 + 12 * index, 60))
        score(run, LAST, ones(10 + 9 * index, 40), DEV, first=500)
    return lab.matrix(sweep)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def matrix(root: Path) -> Matrix:
    return make_matrix(root)


@pytest.fixture(scope="module")
def page(root: Path, matrix: Matrix) -> Page:
    return Page(write_matrix(matrix, root))


@pytest.fixture(scope="module")
def markdown(root: Path, matrix: Matrix, page: Page) -> str:
    return (root / "matrices" / matrix.name / "matrix.md").read_text(encoding="utf-8")


def test_a_cell_shows_score_interval_size_and_verdict(matrix, page, markdown):
    cell = matrix.cells[8, 1e-5]
    compared = cell.against["baseline"]
    shown = page.row("8", percent(cell.score))[1]
    interval = f"{percent(cell.interval.low)} to {percent(cell.interval.high)}"
    difference = points(compared.difference)
    for part in (percent(cell.score), interval, "n 60", difference, compared.verdict):
        assert part in shown
    assert f"{percent(cell.score)}](" in markdown and f"{interval}, n 60" in markdown
    assert page.row("8", percent(cell.score))[2] == "not run" and "| not run |" in markdown


def test_every_score_leads_to_its_record(root, matrix, page, markdown):
    folder = root / "matrices" / matrix.name
    links = [value for tag, name, value in page.attributes if tag == "a" and name == "href"]
    files = [folder / unquote(link) for link in links]
    assert len(files) == 3 and all(file.resolve().is_file() for file in files)
    assert len(re.findall(r"\]\(\.\./\.\./runs/[^)]+\.parquet\)", markdown)) == 3


def test_a_hostile_text_cannot_become_markup(page, markdown):
    assert "script" not in page.elements
    assert "alert(1)" in page.source
    assert "alert(1)" in markdown and "<script" not in markdown.replace("\\<script", "")
