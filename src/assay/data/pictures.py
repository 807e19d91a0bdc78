"""Decodes the images of messages into pictures, with Pillow; `message_parts` reads their bytes.

Pillow is an extra (`assay-lab[vision]`): a model that reads text, or one behind an endpoint, needs
no decoded picture. Nothing is scaled here.
"""

import io
from collections.abc import Iterable
from typing import Any

from assay.data.loaded import DataError
from assay.data.message_parts import image_bytes
from assay.data.row import ImagePart, Message
from assay.errors import InputError

MOST_PIXELS = 64 << 20
"""Of one picture: a small file can claim billions."""
FIX = "restore the image, or take the row out"


def images_in(messages: Iterable[Message]) -> list[ImagePart]:
    """The images of a conversation, in order."""
    return [part for each in messages for part in each.parts if isinstance(part, ImagePart)]


def picture_of(part: ImagePart) -> Any:
    """The picture in RGB, transparent parts on white, as a `PIL.Image.Image`.

    Raises InputError, and DataError that names the row's file and line and the image's path.
    """
    image = pillow()
    data = image_bytes(part)
    try:
        with image.open(io.BytesIO(data)) as opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{width} x {height} pixels are more than {MOST_PIXELS}")
            opened.load()
            if opened.mode not in ("RGBA", "LA", "PA") and "transparency" not in opened.info:
                return opened.convert("RGB")
            layer = opened.convert("RGBA")
            ground = image.new("RGBA", layer.size, "white")
            return image.alpha_composite(ground, layer).convert("RGB")
    except Exception as error:
        # A decoder of a damaged file raises whatever its format's code does.
        raise unreadable(part, error) from error


def unreadable(part: ImagePart, error: Exception) -> DataError:
    """The error about bytes that are no picture."""
    file, line, field = part.origin
    why = " ".join(str(error).split()) or type(error).__name__
    problem = f"{part.path or 'the image'} cannot be read as a picture: {why}"
    return DataError(problem, file=file or None, line=line or None, field=field or None, fix=FIX)


def pillow() -> Any:
    """The module `PIL.Image`. Raises InputError."""
    try:
        from PIL import Image  # type: ignore[import-not-found]
    except ImportError as error:
        fix = "pip install 'assay-lab[vision]'"
        raise InputError("reading images needs Pillow", fix=fix) from error
    return Image
