"""Fingerprints of rows, and the normal forms of text that leakage checks compare.

The fingerprint of a file is `files.sha256_file`.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from assay.data.episode import Context
from assay.data.row import Message, Row, TextPart


def canonical_json(value: Any) -> str:
    """JSON that is the same text for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_text(text: str) -> str:
    """The sha256 of the UTF-8 bytes of `text`, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def prompt_sha256(context: Context | None) -> str | None:
    """The fingerprint of a prompt in tokens; None of one that is no tokens."""
    return sha256_text(canonical_json(list(context))) if isinstance(context, tuple) else None


def content_id(value: Any) -> str:
    """The id of a row whose source gives none: 16 hexadecimal digits of its canonical JSON."""
    return sha256_text(canonical_json(value))[:16]


def hash_ids(rows: Iterable[Row]) -> str:
    """One hash of the row ids in their order."""
    return sha256_text(canonical_json([row.id for row in rows]))


def hash_contents(rows: Iterable[Row]) -> str:
    """One hash of everything the rows say, in their order; where they were read does not count."""
    digest = hashlib.sha256()
    for row in rows:
        messages = [_said(message) for message in row.messages]
        content = asdict(replace(row, messages=())) | {"messages": messages}
        del content["origin"], content["columns"]
        if not row.template_options:
            del content["template_options"]
        digest.update(sha256_text(canonical_json(content)).encode("ascii"))
    return digest.hexdigest()


def _said(message: Message) -> dict[str, Any]:
    """A message without what every message has by default, so that older hashes stay."""
    content = asdict(replace(message, parts=()))
    for name, default in (("loss", True), ("parts", ()), ("name", "")):
        if content[name] == default:
            del content[name]
    if message.parts:
        content["parts"] = [
            part.text if isinstance(part, TextPart) else {"image": part.sha256}
            for part in message.parts
        ]
    return content


def normalise_text(text: str) -> str:
    """`text` in NFKC, case-folded, with every run of punctuation and white space as one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\W_]+", " ", folded).strip()


_SPACING = re.compile(
    r"\\(?:[,;:!> ()\[\]]|q?quad(?![a-z])|(?:left|right|displaystyle)(?![a-z]))|[\s$~{}]"
)


def unspaced(text: str) -> str:
    r"""`text` in NFKC, case-folded, without spaces, LaTeX's spacing, delimiters and braces.

    `$\dfrac{1}{2}\,x$` is `\( \frac 12 x \)`. Signs stay, as 1+12 is not 11+2, but not at
    the end.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _SPACING.sub("", re.sub(r"\\[dt]frac", r"\\frac", folded)).rstrip(".,:;!?")
