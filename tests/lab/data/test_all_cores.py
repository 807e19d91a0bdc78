"""Rows are rendered on all cores as on one; a killed process or a faulty row changes nothing."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.episode import Turn
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Row
from assay.lab.models import language_encoder
from assay.lab.models.language_encoder import LanguageEncoder
from assay.lab.models.language_learner import make_renderer
from assay.lab.models.learner import each_encoded
from assay.lab.monitor.observer import Observer
from tests.data.chat import tokenizer
from tests.data.renderings.test_prepared import TALK
from tests.data.talks import WEATHER

ROWS = [
    Row(str(n), (replace(TALK[0], content=f"{n} {TALK[0].content}"), *TALK[1:]), (WEATHER,))
    for n in range(60)
]


class Told(Observer):
    """Keeps how far work was."""

    def __init__(self) -> None:
        self.work_done: list[int] = []

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """See `Observer`."""
        assert total == len(ROWS)
        self.work_done.append(done)


@pytest.fixture(params=[2, 3])
def cores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setattr(language_encoder, "ALONE", 0)
    monkeypatch.setattr(language_encoder, "TOGETHER", 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(request.param)))
    yield


def encoder() -> LanguageEncoder:
    return LanguageEncoder(make_renderer(tokenizer("chatml"), "hermes"), frozenset())


def encoded(
    by: LanguageEncoder, before: Callable[[Row], object] = lambda row: None
) -> list[tuple[Turn, ...]]:
    def encode(row: Row) -> tuple[Turn, ...]:
        before(row)
        return by.turns(row, row.messages, "all")

    told = Told()
    made = [*each_encoded(by, ROWS, encode, told)]
    assert told.work_done == [*range(1, len(ROWS) + 1)]
    return made


def alone() -> list[tuple[Turn, ...]]:
    by = encoder()
    return [by.renderer.turns(row.messages, row.tools, "all") for row in ROWS]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which processes rendered, as this one knows: it does not know of others."""
    processes: list[int] = []
    render = Renderer._render

    def noted(self: Renderer, *values: object, **named: object) -> object:
        processes.append(os.getpid())
        return render(self, *values, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Renderer, "_render", noted)
    return processes


@pytest.mark.usefixtures("cores")
def test_all_cores_render_what_one_renders(here: list[int]) -> None:
    made = encoded(encoder())
    assert len(here) < len(ROWS) / 4
    assert made == alone()


@pytest.mark.usefixtures("cores")
def test_a_killed_process_costs_time_alone() -> None:
    parent = os.getpid()

    def dies(row: Row) -> None:
        if row.id == "30" and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    assert encoded(encoder(), dies) == alone()


@pytest.mark.usefixtures("cores")
def test_a_faulty_row_is_told_in_its_place_with_file_and_line() -> None:
    by, done = replace(encoder(), options={"x": 1}), []
    rows = [replace(row, origin=f"rows.jsonl:{n}") for n, row in enumerate(ROWS, 1)]
    rows[30] = replace(rows[30], template_options={"x": 2})
    each = each_encoded(by, rows, lambda row: by.turns(row, row.messages, "all"), Observer())
    with pytest.raises(RenderingError, match="row 30: x is 2 in the row") as raised:
        for turns in each:
            done.append(turns)
    assert len(done) == 30
    assert raised.value.file == "rows.jsonl:31"
