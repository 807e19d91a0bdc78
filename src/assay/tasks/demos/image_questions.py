"""Lays out questions about images for the frozen model, with the image or as text alone.

Demonstrations and queries look the same. Where questions and images lie is the sources'.
"""

from hashlib import sha256
from pathlib import Path

from assay.data.loaded import Record
from assay.data.message_parts import media_type, read_image
from assay.data.row import ImagePart, Message, TextPart


def asked_about(question: str, image: ImagePart | None) -> Message:
    """The user's message: the image, if there is one, then the question."""
    text = f"Question: {' '.join(question.split())}\nShort answer:"
    return Message("user", text, parts=() if image is None else (image, TextPart(text)))


def image_in(record: Record, file: Path, field: str) -> ImagePart:
    """The image in a file that `field` of a row names.

    Raises DataError with the row and the path where it is missing, unreadable or of another kind.
    """
    named = f"{field}: {file}"
    data = read_image(record, file, named)
    return ImagePart(
        sha256=sha256(data).hexdigest(),
        media_type=media_type(record, data, named),
        file=file,
        origin=(record.file, record.line, named),
    )
