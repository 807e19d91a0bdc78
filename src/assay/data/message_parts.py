"""Reads, writes and refuses content of a message that is more than text: images.

A data file names an image as OpenAI does, `{"type": "image_url", "image_url": {"url": ...}}`, by a
data URL or by a path below the folder of the data file; `sha256` beside the URL is compared.
Nothing is fetched from a network. Pictures are decoded with Pillow, an extra (`assay-lab[vision]`):
a model that reads text, or one behind an endpoint, needs none. Nothing is scaled here.
"""

import base64
import binascii
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from assay.data.loaded import DataError, Record
from assay.data.row import ImagePart, Message, TextPart
from assay.errors import InputError

MOST_BYTES = 20 << 20
"""The largest image that is read; OpenAI's interface takes 20 MB."""
SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n", b""),
    "image/jpeg": (b"\xff\xd8\xff", b""),
    "image/gif": (b"GIF8", b""),
    "image/webp": (b"RIFF", b"WEBP"),
}
"""By media type, the first bytes of a file and those from its ninth on."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,", re.ASCII)


def image_part(record: Record, value: Any, path: str) -> ImagePart:
    """The image that `image_url` names. Raises DataError for one that is not there or not right."""
    image = record.typed(path, value, dict)
    url = record.typed(f"{path}.url", image.get("url"), str)
    unknown = [key for key in image if key not in ("url", "sha256")]
    if unknown:
        raise record.error(f"{path}.{unknown[0]}", "unknown key", "an image has url and sha256")
    if url.startswith("data:"):
        file, data = None, decoded(record, url, f"{path}.url")
    else:
        file = image_file(record, url, f"{path}.url")
        data = read_image(record, file, f"{path}.url")
    digest = hashlib.sha256(data).hexdigest()
    stated = image.get("sha256")
    if stated is not None and record.typed(f"{path}.sha256", stated, str) != digest:
        problem = f"the image's sha256 is {digest}, not {stated}"
        raise record.error(f"{path}.sha256", problem, "restore the image, or correct the sha256")
    return ImagePart(
        sha256=digest,
        media_type=media_type(record, data, f"{path}.url"),
        path="" if file is None else url,
        data=data if file is None else None,
        file=file,
        origin=(record.file, record.line, path),
    )


def decoded(record: Record, url: str, path: str) -> bytes:
    """The bytes of a data URL. Raises DataError."""
    head = _DATA_URL.match(url)
    if head is None:
        fix = "write data:image/png;base64,... (png, jpeg, gif or webp)"
        raise record.error(path, "is no data URL of an image in base64", fix)
    if len(url) > MOST_BYTES * 4 // 3 + 100:
        raise record.error(path, f"the image is larger than {MOST_BYTES >> 20} MiB")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise record.error(path, f"is not base64: {error}") from error
    if media_type(record, data, path) != head[1]:
        raise record.error(path, f"says {head[1]} of other bytes", "correct the media type")
    return data


def image_file(record: Record, url: str, path: str) -> Path:
    """The file that a relative path names, below the data file's folder and through no symlink.

    A data file comes from elsewhere: what it names must not make the lab read, and send to an
    endpoint, a file of the user's. Raises DataError.
    """
    fix = "put the image into the data file's folder and name it relative to that"
    if _SCHEME.match(url):
        raise record.error(path, "is a URL of another place; nothing is fetched", fix)
    relative = PurePosixPath(url)
    if relative.is_absolute() or ".." in relative.parts or "\\" in url or "\0" in url:
        raise record.error(path, "is no path below the data file's folder", fix)
    file = Path(record.file).parent
    for name in relative.parts:
        file = file / name
        if file.is_symlink():
            raise record.error(path, "goes through a symbolic link", fix)
    return file


def read_image(record: Record, file: Path, path: str) -> bytes:
    """The bytes of an image file. Raises DataError."""
    try:
        if not file.is_file():
            raise record.error(path, "no such image", "restore it, or take the row out")
        if file.stat().st_size > MOST_BYTES:
            raise record.error(path, f"the image is larger than {MOST_BYTES >> 20} MiB")
        # Without O_NOFOLLOW a link could take the file's place between the check and the reading.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as handle:
            return handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise record.error(path, f"cannot be read: {error.strerror}") from error


def media_type(record: Record, data: bytes, path: str) -> str:
    """What the first bytes say that an image is. Raises DataError."""
    for kind, (first, ninth) in SIGNATURES.items():
        if data.startswith(first) and data[8:].startswith(ninth):
            return kind
    raise record.error(path, "is no png, jpeg, gif or webp image", "convert it")


def image_bytes(part: ImagePart) -> bytes:
    """The image itself. Raises DataError where its file has changed since the row was read."""
    if part.data is not None:
        return part.data
    assert part.file is not None
    file, line, field = part.origin
    record = Record(file, line, {})
    data = read_image(record, part.file, field)
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise record.error(field, "the image has changed since the row was read", "start again")
    return data


def data_url(part: ImagePart) -> str:
    """The image as a data URL. Raises DataError."""
    return f"data:{part.media_type};base64,{base64.b64encode(image_bytes(part)).decode('ascii')}"


def stored_parts(message: Message) -> list[dict[str, Any]]:
    """The parts as a data file holds them: an image by its path and sha256, else by its bytes."""
    return _openai_parts(message, lambda p: {"url": p.path or data_url(p), "sha256": p.sha256})


def _openai_parts(
    message: Message, image: Callable[[ImagePart], dict[str, str]]
) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": image(part)}
        for part in message.parts
    ]


def sent_parts(message: Message) -> list[dict[str, Any]]:
    """The parts as an endpoint takes them: images as data URLs. Raises DataError."""
    return _openai_parts(message, lambda part: {"url": data_url(part)})


def refuse_images(messages: Iterable[Message], carrier: str, fix: str) -> None:
    """Raise DataError, naming file, line and field, for an image that `carrier` cannot carry."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ImagePart):
                file, line, field = part.origin
                problem = f"an image, which {carrier} cannot carry"
                raise DataError(problem, file=file, line=line, field=field, fix=fix)


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
