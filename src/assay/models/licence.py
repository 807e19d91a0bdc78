"""Under which licence a model was published, where its files say so. Judges nothing."""

import re
from pathlib import Path

from assay.models.source import ModelSource

_FRONT = re.compile(r"\A---\n(.*?)\n---", re.DOTALL)
_LICENCE = re.compile(r"^license:\s*[\"']?([A-Za-z0-9._-]+)", re.MULTILINE)


def known_licence(source: ModelSource, folder: Path) -> str:
    """The identifier in the model's card, or in the GGUF file of its wheel; empty if unknown."""
    if source.kind == "pypi":
        return _of_wheel(source.name)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = _FRONT.match(text.replace("\r\n", "\n"))
    found = _LICENCE.search(front[1]) if front else None
    return found[1] if found else ""


def _of_wheel(name: str) -> str:
    # Reading the file's header takes a second, and most callers have another kind of source.
    import gguf

    from assay.models.convert_gguf import MODEL_WHEELS
    from assay.models.wheels import wheel_directory

    reader = gguf.GGUFReader(wheel_directory(name) / MODEL_WHEELS[name].gguf)
    field = reader.get_field("general.license")
    return str(field.contents()) if field else ""
