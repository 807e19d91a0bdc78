"""A frozen model behind an endpoint sees every image byte for byte, and gives no scores."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.formats import read_rows
from assay.data.loaded import DataError
from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.helper_tables import HelperSpec
from assay.lab.setup.helper_models import HelperModels
from assay.models.precision import choose_precision
from assay.tasks.demos.demonstrations import (
    Demonstration,
    DemonstrationSet,
    Query,
    query_row,
)
from assay.tasks.demos.frozen import ask, judge
from assay.tasks.helper_model import HelperModel

FP32 = choose_precision("fp32", "cpu")
SIGNATURES = {"a.png": b"\x89PNG\r\n\x1a\n", "b.jpg": b"\xff\xd8\xff", "c.gif": b"GIF89a"}
IMAGES = {name: head + bytes(range(256)) * 40 for name, head in SIGNATURES.items()}


class Server(ThreadingHTTPServer):
    """Answers every question with the number of images in it."""

    asked: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)  # type: ignore[attr-defined]
        parts = [part for m in body["messages"] for part in m["content"] if isinstance(part, dict)]
        count = sum(part["type"] == "image_url" for part in parts)
        message = {"role": "assistant", "content": f"{count} images"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        raw = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving() -> Iterator[tuple[Server, str]]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def frozen(url: str, folder: Path) -> HelperModel:
    spec = HelperSpec(source="openai:vision", endpoint=url, price="unknown")
    return HelperModels({"frozen": spec}, folder, FP32)["frozen"]


@pytest.fixture
def questions(tmp_path: Path) -> list[Message]:
    """A question about each image, read from a data file."""
    lines = []
    for n, (name, data) in enumerate(IMAGES.items()):
        (tmp_path / name).write_bytes(data)
        content = [
            {"type": "image_url", "image_url": {"url": name}},
            {"type": "text", "text": f"{n}?"},
        ]
        lines.append(
            json.dumps({"id": name, "messages": [{"role": "user", "content": content}], "gold": 1})
        )
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return [row.prompt[0] for row in read_rows(tmp_path / "rows.jsonl", "messages")]


def sent_images(body: dict[str, Any]) -> list[bytes]:
    """The bytes of every image of a request, in order."""
    urls = [
        part["image_url"]["url"]
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    assert all(url.startswith("data:image/") for url in urls)
    return [base64.b64decode(url.partition(";base64,")[2], validate=True) for url in urls]


def row_of(questions: list[Message]):
    given = tuple(Demonstration(f"d{n}", q, str(n)) for n, q in enumerate(questions[:2]))
    found = DemonstrationSet("made", "Count.", given)
    return query_row(found, Query("q", questions[2], ("3 images",)), (0, 1), 2)


def test_a_selections_images_arrive_byte_for_byte_in_the_order_of_the_prompt(
    tmp_path: Path, questions: list[Message]
) -> None:
    row = row_of(questions)
    with serving() as (server, url):
        # The first pick stands next to the query.
        (outcome,) = ask(frozen(url, tmp_path), [(row, (0, 1))])
    assert (outcome.generation, outcome.correct) == ("3 images", True)
    (body,) = server.asked
    order = ("b.jpg", "a.png", "c.gif")
    assert sent_images(body) == [IMAGES[name] for name in order]
    kinds = [m["content"][0]["image_url"]["url"].partition(";")[0] for m in body["messages"][1::2]]
    assert kinds == ["data:image/jpeg", "data:image/png", "data:image/gif"]
    assert [message["role"] for message in body["messages"]] == [
        "system",
        *["user", "assistant"] * 2,
        "user",
    ]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 8)


def test_an_endpoint_gives_no_scores_and_says_what_does(
    tmp_path: Path, questions: list[Message]
) -> None:
    problem = (
        r"^model\.frozen\.source: a model behind an endpoint gives no log-probabilities \(score"
    )
    with serving() as (server, url):
        with pytest.raises(InputError, match=problem):
            frozen(url, tmp_path).score([questions[:1]], ["x"])
        with pytest.raises(InputError, match=problem):
            judge(frozen(url, tmp_path), [(row_of(questions), (0, 1))])
    assert len(server.asked) == 1


def test_an_image_that_changed_since_its_row_was_read_is_never_sent(
    tmp_path: Path, questions: list[Message]
) -> None:
    row = row_of(questions)
    (tmp_path / "a.png").write_bytes(IMAGES["a.png"] + b"x")
    with serving() as (server, url), pytest.raises(DataError) as raised:
        ask(frozen(url, tmp_path), [(row, (0, 1))])
    assert server.asked == []
    place = f"{tmp_path / 'rows.jsonl'}:1: messages[0].content[0].image_url: the image has changed"
    assert str(raised.value).startswith(place)
