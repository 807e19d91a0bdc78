"""The page of a matrix says what the matrix says, links every score, and nothing in it can act."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from assay.lab.sweep.model import Matrix
from assay.lab.sweep.request import Request, make_matrix
from assay.pages.matrix_page import write_matrix
from assay.pages.words import percent, points
from tests.lab.pivot_lab import DEV, LAST, make_pivot_lab, ones, score
from tests.pages.pages import Page

BATCH, RATE = "stage.sft.batch", "stage.sft.optimizer.lr"
EVIL = '<script>alert(1)</script>"|x'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = make_pivot_lab(tmp_path_factory.mktemp("lab"))
    for index, (batch, rate) in enumerate([(4, 1e-5), (4, 2e-5), (8, 1e-5)]):
        run = lab.run(f"g{index}", f"{BATCH}={batch}", f"{RATE}={rate}", f"task='{EVIL}'")
        score(run, LAST, ones(20 + 12 * index, 60))
        score(run, LAST, ones(10 + 9 * index, 40), DEV, first=500)
    return lab.root


@pytest.fixture(scope="module")
def matrix(root: Path) -> Matrix:
    return make_matrix(root, ["g*"], Request(rows=BATCH, columns=RATE, baseline="g0"))


@pytest.fixture(scope="module")
def page(root: Path, matrix: Matrix) -> Page:
    return Page(write_matrix(matrix, root))


@pytest.fixture(scope="module")
def markdown(root: Path, matrix: Matrix, page: Page) -> str:
    return (root / "matrices" / matrix.name / "matrix.md").read_text(encoding="utf-8")


def test_a_cell_shows_score_interval_size_and_verdict(matrix, page, markdown):
    cell = matrix.cells[4, 2e-5]
    assert cell.interval is not None and cell.comparison is not None
    shown = page.row("4", percent(matrix.cells[4, 1e-5].score))[2]
    interval = f"{percent(cell.interval.low)} to {percent(cell.interval.high)}"
    difference = points(cell.comparison.difference)
    for part in (percent(cell.score), interval, "n 60", difference, cell.comparison.verdict):
        assert part in shown
    assert f"{percent(cell.score)}](" in markdown and f"{interval}, n 60" in markdown


def test_a_missing_cell_is_not_run_and_an_average_says_how_many_it_counts(matrix, page, markdown):
    row = page.row("8", percent(matrix.cells[8, 1e-5].score))
    assert row[2] == "not run"
    assert "1 of 2 cells" in row[3]
    assert "| not run |" in markdown


def test_every_score_leads_to_its_record(root, matrix, page, markdown):
    folder = root / "matrices" / matrix.name
    links = [value for tag, name, value in page.attributes if tag == "a" and name == "href"]
    files = [folder / unquote(link) for link in links]
    assert len(files) == 3 and all(file.resolve().is_file() for file in files)
    assert len(re.findall(r"\]\(\.\./\.\./runs/[^)]+\.parquet\)", markdown)) == 3


def test_a_hostile_name_cannot_become_markup(root):
    found = make_matrix(root, ["g*"], Request(rows="task", columns="name", baseline=None))
    page = Page(write_matrix(found, root))
    assert "script" not in page.elements
    assert "alert(1)" in page.source
    text = (root / "matrices" / found.name / "matrix.md").read_text()
    assert "alert(1)" in text and "<script" not in text.replace("\\<script", "")
