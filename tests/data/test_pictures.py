"""Images become pictures as they are shown; what is none is named by its row."""

import io

import pytest

from assay.data.loaded import DataError
from assay.data.message_parts import picture_of
from assay.data.row import ImagePart
from assay.errors import InputError
from tests.models.vision_folders import image_of, real_image

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
