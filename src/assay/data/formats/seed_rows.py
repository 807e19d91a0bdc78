"""Rows that something is made from: documents, and descriptions of tools. They have no answer.

A text file (`.txt`, `.md`) holds a document between blank lines; other files hold objects with
`text`. A description of a tool is an object itself, or several of them are one row as `tools`.
"""

from collections.abc import Iterator
from pathlib import Path

from assay.data.formats.kept import build_row
from assay.data.json_files import not_utf8
from assay.data.loaded import Record, check_file
from assay.data.row import Message, Row
from assay.data.tools import function_of, parse_tools

DOCUMENTS = "documents"
PLAIN = (".txt", ".md")
"""Endings of files of text."""


def document_row(record: Record) -> Row:
    """A document as a user's message. Raises DataError."""
    return build_row(record, (Message("user", record.need("text", str)),), (), "text")


def read_paragraphs(path: Path) -> Iterator[Record]:
    """The paragraphs of a text file as objects, each with the line that it begins on. Raises
    DataError."""
    check_file(path)
    raw = path.read_bytes()
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, 1 + raw.count(b"\n", 0, error.start)) from error
    begun, held = 1, list[str]()
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            begun = begun if held else number
            held.append(line.rstrip())
        elif held:
            yield Record(str(path), begun, {"text": "\n".join(held)})
            held = []


def tool_row(record: Record) -> Row:
    """One or several descriptions; the user's message says their names and what they are for.
    Raises DataError."""
    several = "tools" in record.value
    alone = record.others("id")
    tools = parse_tools(record, record.value["tools"] if several else [alone])
    if not tools:
        raise record.error("tools", "describes no tool")
    described = [function_of(tool) for tool in tools]
    said = "\n".join(f"{each['name']}: {each.get('description', '')}" for each in described)
    own = ("tools",) if several else tuple(alone)
    return build_row(record, (Message("user", said),), tools, *own)
