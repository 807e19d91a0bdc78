"""Images that the frozen model cannot read are found before a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.data.row import Message, Row
from assay.errors import Finding
from assay.experiment.helper_tables import HelperSpec
from assay.labs.demos.checks import shown_images
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query, query_row
from tests.models.folders import save_tiny_model
from tests.models.vision_folders import real_image, save_vision_model, shown

pytest.importorskip("PIL.Image", reason="needs pillow")
BROKEN = b"\x89PNG\r\n\x1a\nnothing"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    save_tiny_model(folder / "text")
    save_vision_model(folder / "vision", "smolvlm")
    return folder


def row_of(query: Message, demonstration: Message) -> Row:
    found = DemonstrationSet("made", "", (Demonstration("d0", demonstration, "red"),))
    return query_row(found, Query("q0", query, ("red",)), (0,), 1)


def seen(root: Path, source: str, *rows: Row) -> list[Finding]:
    experiment = SimpleNamespace(helpers={"frozen": HelperSpec(source=source, price="unknown")})
    session: Any = SimpleNamespace(
        experiment=experiment,
        run=SimpleNamespace(root=root),
        sets={"train": SimpleNamespace(rows=rows[:1])},
        evaluations={"dev": SimpleNamespace(items=rows[1:])},
    )
    subject: Any = SimpleNamespace(session=session)
    return [each for each in shown_images(subject) if isinstance(each, Finding)]


TEXT = Message("user", "What?")


@pytest.mark.parametrize("place", ["query", "demonstration", "item"])
def test_a_model_of_text_is_refused_once_wherever_the_image_is(root, place) -> None:
    image = shown(real_image(0), "What?")
    rows = {
        "query": [row_of(image, TEXT)],
        "demonstration": [row_of(TEXT, image)],
        "item": [row_of(TEXT, TEXT), row_of(image, TEXT)],
    }[place]
    (error,) = seen(root, "path:text", *rows)
    assert error.severity == "error" and error.what == "model.frozen reads text alone"
    assert "1 images, the first at rows.jsonl:3: messages[0]" in error.evidence


def test_text_images_for_a_model_that_reads_them_and_endpoints_pass(root) -> None:
    assert seen(root, "path:text", row_of(TEXT, TEXT)) == []
    image = shown(real_image(0), "What?")
    assert seen(root, "path:vision", row_of(image, image)) == []
    assert seen(root, "openai:any", row_of(image, image)) == []


def test_an_image_that_cannot_be_read_is_named_by_its_row(root) -> None:
    (error,) = seen(root, "path:vision", row_of(shown(BROKEN, "What?"), TEXT))
    assert error.severity == "error" and "cannot be read as a picture" in error.what
    assert error.evidence.startswith("rows.jsonl:3: messages[0]")
