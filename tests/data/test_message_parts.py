"""Images in messages: carried by the format that can, refused in one line by all that cannot."""

import base64
import hashlib
import io
import json
from pathlib import Path

import pytest

from assay.data.formats.formats import read_rows, write_rows
from assay.data.loaded import DataError
from assay.data.message_parts import MOST_BYTES, image_bytes, picture_of, sent_parts
from assay.data.renderings.rendering import RENDERINGS, Renderer
from assay.data.row import ImagePart, Row, TextPart
from assay.errors import InputError
from tests.data.chat import tokenizer
from tests.models.vision_folders import image_of, real_image

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(32))
SHA256 = hashlib.sha256(PNG).hexdigest()
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def rows_of(folder: Path, image: object, text: str = "What is this?") -> list[Row]:
    """The rows of a file with one image in its question."""
    folder.mkdir(exist_ok=True)
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": image}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "A cat."}]
    file = folder / "rows.jsonl"
    file.write_text(json.dumps({"id": "a", "messages": messages}) + "\n", encoding="utf-8")
    return read_rows(file, "messages")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    (found / "images").mkdir(parents=True)
    (found / "images" / "cat.png").write_bytes(PNG)
    return found


@pytest.mark.parametrize("url", ["images/cat.png", URL], ids=["path", "bytes"])
def test_an_image_comes_back_from_jsonl_as_it_was(folder: Path, url: str):
    rows = rows_of(folder, {"url": url, "sha256": SHA256})
    text, image = rows[0].messages[0].parts
    assert text == TextPart("What is this?") and isinstance(image, ImagePart)
    assert rows[0].messages[0].content == "What is this?"
    assert (image.sha256, image.media_type, image_bytes(image)) == (SHA256, "image/png", PNG)
    assert write_rows(folder / "again.jsonl", rows, "messages") == {}
    assert read_rows(folder / "again.jsonl", "messages")[0].messages == rows[0].messages
    assert sent_parts(rows[0].messages[0])[1] == {"type": "image_url", "image_url": {"url": URL}}


@pytest.mark.parametrize(
    ("image", "field", "problem"),
    [
        ({"url": "images/dog.png"}, "url", "no such image"),
        ({"url": "images/cat.png", "sha256": "0" * 64}, "sha256", f"sha256 is {SHA256}, not 000"),
        ({"url": "../secret.png"}, "url", "no path below the data file's folder"),
        ({"url": "images/cat.png\0"}, "url", "no path below"),
        ({"url": "linked.png"}, "url", "symbolic link"),
        ({"url": "https://example.org/cat.png"}, "url", "nothing is fetched"),
        ({"url": "images/text.png"}, "url", "no png, jpeg, gif or webp"),
        ({"url": "images/large.png"}, "url", "larger than 20 MiB"),
        ({"url": URL[:-3]}, "url", "is not base64"),
        ({"url": URL.replace("png", "gif", 1)}, "url", "says image/gif of other bytes"),
        ({"url": "data:text/html,hi"}, "url", "no data URL of an image"),
        ({"url": "images/cat.png", "detail": "low"}, "detail", "unknown key"),
        ("images/cat.png", "", "is a string, not an object"),
    ],
)
def test_a_wrong_or_hostile_image_is_one_line(folder: Path, image, field: str, problem: str):
    secret = folder.parent / "secret.png"
    secret.write_bytes(PNG)
    (folder / "linked.png").symlink_to(secret)
    (folder / "images" / "text.png").write_text("<html>")
    with (folder / "images" / "large.png").open("wb") as large:
        large.write(PNG)
        large.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError) as found:
        rows_of(folder, image)
    place = f"{folder / 'rows.jsonl'}:1: messages[0].content[1].image_url"
    assert str(found.value).startswith(place + (f".{field}: " if field else ": "))
    assert problem in str(found.value) and "\n" not in str(found.value)


def test_an_image_that_changes_after_reading_is_not_sent(folder: Path):
    (row,) = rows_of(folder, {"url": "images/cat.png"})
    (folder / "images" / "cat.png").write_bytes(PNG + b"!")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: .*image has changed"):
        sent_parts(row.messages[0])


@pytest.mark.parametrize("name", sorted(RENDERINGS))
def test_text_renderings_refuse_an_image(folder: Path, name: str):
    (row,) = rows_of(folder, {"url": "images/cat.png"})
    renderer = Renderer(tokenizer("qwen3"), name)
    line = rf"rows\.jsonl:1: messages\[0\]\.content\[1\].*rendering '{name}' cannot carry"
    for use in (renderer.prompt, renderer.turns):
        with pytest.raises(DataError, match=line):
            use(row.messages)


Image = pytest.importorskip("PIL.Image", reason="needs pillow")


def encoded(image, name: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, name, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", ["PNG", "GIF", "WEBP", "JPEG"])
def test_every_format_that_messages_hold_is_read_in_rgb(name: str) -> None:
    red = Image.new("RGB", (12, 7), (255, 0, 0))
    picture = picture_of(image_of(encoded(red, name)))
    assert (picture.mode, picture.size) == ("RGB", (12, 7))
    assert picture.getpixel((5, 3)) == pytest.approx((255, 0, 0), abs=3)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white_as_a_page_shows_it(mode: str) -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    options = {"transparency": clear.getpixel((0, 0))} if mode == "P" else {}
    picture = picture_of(image_of(encoded(clear, "PNG", **options)))
    assert picture.getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize("cut", [9, 60, 200])
def test_a_damaged_image_is_named_by_row_and_path(cut: int) -> None:
    part = image_of(real_image(0)[:cut])
    named = ImagePart(part.sha256, "image/png", "images/cat.png", part.data, origin=part.origin)
    with pytest.raises(DataError) as raised:
        picture_of(named)
    place = "rows.jsonl:3: messages[0].content[0].image_url: images/cat.png cannot be read"
    assert str(raised.value).startswith(place) and "\n" not in str(raised.value)
    assert raised.value.fix == "restore the image, or take the row out"


def test_a_small_file_that_claims_billions_of_pixels_is_not_decoded() -> None:
    bomb = encoded(Image.new("1", (9000, 9000)), "PNG")
    assert len(bomb) < 1 << 20
    with pytest.raises(DataError, match="9000 x 9000 pixels are more than"):
        picture_of(image_of(bomb))


def test_without_pillow_the_package_to_install_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InputError, match=r"needs Pillow \(pip install 'assay-lab\[vision\]'\)"):
        picture_of(image_of(real_image(0)))
