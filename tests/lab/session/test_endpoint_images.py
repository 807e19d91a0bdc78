"""A frozen model behind an endpoint gives no scores, and gets no image that changed since.

That images are sent byte for byte is tested in `tests/rollout/engines/endpoint/test_client.py`.
"""

import json
from pathlib import Path

import pytest

from assay.data.formats.formats import read_rows
from assay.data.loaded import DataError
from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.helper_tables import HelperSpec
from assay.lab.models.helper_models import HelperModels
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query, query_row
from assay.labs.demos.outcomes import ask
from assay.models.precision import choose_precision
from assay.tasks.helper_model import HelperModel

SIGNATURES = {"a.png": b"\x89PNG\r\n\x1a\n", "b.jpg": b"\xff\xd8\xff", "c.gif": b"GIF89a"}
NOBODY = "http://127.0.0.1:9/v1"
"""Where no server answers."""


def frozen(folder: Path) -> HelperModel:
    spec = HelperSpec(source="openai:vision", endpoint=NOBODY, price="unknown")
    return HelperModels({"frozen": spec}, folder, choose_precision("fp32", "cpu"))["frozen"]


@pytest.fixture
def row(tmp_path: Path):
    """A query about an image with two demonstrations, read from a data file."""
    lines = []
    for n, (name, head) in enumerate(SIGNATURES.items()):
        (tmp_path / name).write_bytes(head + bytes(range(256)))
        image = {"type": "image_url", "image_url": {"url": name}}
        content = [image, {"type": "text", "text": f"{n}?"}]
        asked = [{"role": "user", "content": content}]
        lines.append(json.dumps({"id": name, "messages": asked, "gold": 1}))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    questions = [row.prompt[0] for row in read_rows(tmp_path / "rows.jsonl", "messages")]
    shown = tuple(Demonstration(f"d{n}", q, str(n)) for n, q in enumerate(questions[:2]))
    made = DemonstrationSet("made", "Count.", shown)
    return query_row(made, Query("q", questions[2], ("3 images",)), (0, 1), 2)


def test_an_endpoint_gives_no_scores_and_says_what_does(tmp_path: Path) -> None:
    problem = r"^model\.frozen\.source: a model behind an endpoint gives no log-probabilities"
    with pytest.raises(InputError, match=problem):
        frozen(tmp_path).score([(Message("user", "?"),)], ["x"])


def test_an_image_that_changed_since_its_row_was_read_is_never_sent(tmp_path: Path, row) -> None:
    (tmp_path / "a.png").write_bytes(SIGNATURES["a.png"] + b"x")
    place = r"rows\.jsonl:1: messages\[0\]\.content\[0\]\.image_url: the image has changed"
    with pytest.raises(DataError, match=place):
        ask(frozen(tmp_path), [(row, (0, 1))])
