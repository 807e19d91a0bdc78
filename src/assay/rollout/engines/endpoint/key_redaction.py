"""Takes a key out of text that a server sent, in the forms in which servers repeat keys.

The key itself, written with the escapes of JSON, URLs or HTML, in hexadecimal or in base64, alone
or inside something longer. What a server made of it otherwise (reversed, encrypted, cut) is not
found.
"""

import base64
import re
from functools import cache
from urllib.parse import quote

SHOWN = "[key]"
SECRET_LENGTH = 8
"""A shorter key is a stand-in such as EMPTY or none: a word that answers may hold."""


def redact(text: str, key: str | None, *, answer: bool = False) -> str:
    """`text` with SHOWN for the key; in an `answer`, only for one that may be secret."""
    if not key or (answer and len(key) < SECRET_LENGTH):
        return text
    return _forms(key).sub(SHOWN, text)


def holds_key(text: str, key: str | None) -> bool:
    """Whether a key that may be secret stands in the text."""
    return redact(text, key, answer=True) != text


@cache
def _forms(key: str) -> re.Pattern[str]:
    raw = key.encode("utf-8", "surrogateescape")
    forms = ["".join(map(_character, key))]
    if len(key) >= SECRET_LENGTH:
        forms += [f"(?i:{raw.hex()})", *_base64(raw)]
    return re.compile("|".join(forms))


def _character(character: str) -> str:
    """One character as it is, or escaped."""
    code = ord(character)
    percent = quote(character, safe="", errors="surrogateescape")
    if len(percent) == 1:
        percent = f"%{code:02X}"
    written = [
        re.escape(character),
        rf"\\+u(?i:{code:04x})",
        rf"\\+x(?i:{code:02x})",
        rf"\\+{re.escape(character)}",
        f"(?i:{re.escape(percent)}|{re.escape(percent.replace('%', '%25'))})",
        rf"&#0*{code};",
        rf"(?i:&#x0*{code:x};)",
    ]
    if character == " ":
        written.append(r"\+")
    return f"(?:{'|'.join(written)})"


def _base64(raw: bytes) -> list[str]:
    """The characters of the key's base64 that do not depend on what stands around it, and the
    groups beside them, in which its first and last bytes share characters with that."""
    forms = []
    for before in range(3):
        padded = b"\0" * before + raw
        core = slice(4 if before else 0, len(padded) // 3 * 4)
        first = "(?:[A-Za-z0-9+/_-]{4})?" if before else ""
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            sure = re.escape(encode(padded).decode()[core])
            forms.append(f"{first}{sure}[A-Za-z0-9+/_-]{{0,4}}=*")
    return list(dict.fromkeys(forms))
