r"""Finds the final answer in a text, in a box or as a sentence says it, and the value in it.

A model without a box writes "So she makes $18 every day." or 答：每人分到9个。 The answer is
what the last sentence says: after "so" and the like, where there is such a word. Its value is what
stands behind "is", before "is", or the only formula; a sentence with several has none, unless they
are named. Pure string work on texts of bounded length.
"""

import re
from decimal import Decimal, localcontext
from fractions import Fraction

from assay.data.files import sha256_text
from assay.labs.math import written
from assay.labs.math.written import plain

_DECIMAL = re.compile(r"(?:\\?\$)?([+-]?)(?:\\?\$)?(\d{1,3}(?:,\d{3})+|\d{1,40})(\.\d{1,40})?\.?")
_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[-+]?\d+(?:[.,/]\d+)*|(?<=\s)[A-Za-z](?![A-Za-z])))"
)
_MARKED = re.compile(r"#+\s*(.*)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_JOINED = re.compile(
    r"(?:[,;$&/.\\% \t，；、。①-⑨]|\\[()\[\]]|\n(?!\s*\n)|\bor\b|\band\b|[或和与]|\\q?quad"
    r"|\\text\s*\{\s*(?:or|and)\s*\})*"
)
"""What may stand between boxes that are one answer together."""
_LONG_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LONGEST_BARE = 80
_LONGEST_READ = 10_000
"""Characters of an answer whose writing is looked at for facts."""
LONGEST_FACT = 200
"""Characters of an answer in facts."""


def final_answer(text: str) -> str | None:
    r"""The last `\boxed{...}` or the rest of the line after the last `####`, whichever is later.

    Boxes with nothing but commas, "or" and "and" between them are one answer, a list: who gives
    several answers is not asked for the last.
    """
    box, end = last_boxed(text)
    marker = text.rfind("####")
    marked = _MARKED.match(text, marker) if marker > end else None
    return without_courtesy(marked[1]) or None if marked else box


_COURTESY = re.compile(
    r"(?<=[.*$)\]!\n。])\s*(?:(?:I )?hope (?:it|this)|let me know|thank you|希望)[^\d\n]*$",
    re.IGNORECASE,
)
"""A polite sentence at the end, such as Minerva's "I hope it is correct."."""


def without_courtesy(text: str) -> str:
    """A text without the polite sentence at its end."""
    text = text.strip()
    match = _COURTESY.search(text, max(0, len(text) - 300))
    return text[: match.start()].rstrip() if match else text


_FINAL = re.compile(r".*\bfinal answer is\b(?:[^.。\n]|\.(?=\d))*", re.DOTALL | re.IGNORECASE)
"""A text up to the end of what it calls its final answer."""


def last_boxed(text: str) -> tuple[str | None, int]:
    r"""What the last closed boxes that belong together hold, and where they end; else (None, -1).

    `\boxed 42` is a box too, and `\fbox{42}`. Braces nest to any depth; `\{` and `\}` are text.
    """
    together: list[str] = []
    last = -1
    for match in _BOX.finditer(text):
        if match.start() < last:
            continue
        end = match.end() if match["bare"] else _closing_brace(text, match.end())
        if end < 0:
            break  # every later box lies inside this unclosed one
        if last < 0 or not _JOINED.fullmatch(text, last, match.start()):
            together = []
        together.append(match["bare"] or text[match.end() : end].strip())
        last = end if match["bare"] else end + 1
    return ", ".join(dict.fromkeys(filter(None, together))) or None, last


def _closing_brace(text: str, start: int) -> int:
    """Where the brace that was opened before `start` closes, or -1."""
    depth = 1
    for mark in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.start()
    return -1


def is_bare(text: str) -> bool:
    """Whether a text is a mathematical answer and nothing else: one short line without words."""
    line = text.strip()
    if not line or len(line) > _LONGEST_BARE or "\n" in line:
        return False
    return _LONG_WORD.search(_COMMAND.sub("", line)) is None


def number(text: str) -> Fraction | None:
    """A plain decimal number, with thousands commas, a dollar sign or a full stop; else None.

    "1,450" is one thousand four hundred and fifty, never a pair.
    """
    match = _DECIMAL.fullmatch(text.strip().strip("$").strip())
    if match is None:
        return None
    sign, whole, decimals = match.groups()
    return Fraction(f"{sign}{whole.replace(',', '')}{decimals or ''}")


def canonical(answer: str) -> str:
    """The answer as records hold it, so that equal texts are equal votes: "1450" of "$1,450.00".

    Other answers than plain numbers lose delimiters, sizes and odd spaces; a long one is cut and
    named by its hash.
    """
    value = number(answer)
    if value is not None:
        with localcontext(prec=100):
            return f"{(Decimal(value.numerator) / value.denominator).normalize():f}"
    text = plain(answer) if len(answer) <= _LONGEST_READ else answer
    if len(text) <= LONGEST_FACT:
        return text
    return f"{text[: LONGEST_FACT - 9]}…{sha256_text(text)[:8]}"


def delimited(answer: str) -> str:
    r"""`answer` in `$...$`, so that math-verify reads all of it as LaTeX.

    Left alone: what has delimiters already, and prose (no markup, but a word), in which
    math-verify looks for a number. Without delimiters it would read `2^{10}` as 2.
    """
    has_delimiters = answer.count("$") > 1 or any(
        mark in answer for mark in (r"\[", r"\(", r"\boxed")
    )
    has_markup = any(mark in answer for mark in "\\^_{}=<>")
    if has_delimiters or (not has_markup and _LONG_WORD.search(answer)):
        return answer
    return f"${answer}$"


LONGEST_LINE, LONGEST_SENTENCE = 400, 240
_TAGGED = re.compile(
    r"<answer>([^<]*)</answer>|\"(?:final_)?answer\"\s*:\s*(?:\"([^\"\n]*)\"|([-+]?[\d.]+))"
)
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\\!)(?<![A-Z]\.)(?<!i\.e\.|e\.g\.)\s+(?=\S)|(?<=[。！？])(?=[^*])"
)
_LABEL = re.compile(
    r"(?:.*[.。，,；;]\s*)?(?:(?:so|thus|hence|therefore)\b\s*,?\s*)?(?:the\s+)?"
    r"(?:final\s+|correct\s+)?answer\s*(?::|\.\s|：)\s*"
    r"(?:the (?:final |correct )?answer is:?\s*)?(?P<stated>.+)"
    r"|(?:.*[。，,])?(?:最终|最后|正确)?(?:答案|答|结论)\s*[：:]\s*(?P<chinese>.+)"
    r"|(?:.*[。，,；;])?\s*(?:(?:综上|故|因此|所以)[，,]?)?(?:正确)?(?:答案|选项|应|本题)?(?:是|为)?"
    r"选?(?:择|项)?\s*[：:是为]?\s*(?P<choice>(?<=[选择项是为：: ])[A-HＡ-Ｈ]"
    r"(?:[、,，和]?[A-HＡ-Ｈ])*(?:[.．、]\s*\S.*)?)\s*[.。．]?",
    re.IGNORECASE,
)
"""A line with the mark of an answer and the answer."""
_STATEMENT = re.compile(
    r"(?:.*\b(?:the|my|our)\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)\s*(?:is\s*:?|=)"
    r"\s*(?P<stated>.+)|.*?(?:答案|选项)\s*[是为]\s*[：:]?\s*(?P<chinese>.+)",
    re.IGNORECASE,
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_MARKER = re.compile(
    r"(?:^|(?<=[\s,，;；。、:：*]))(?:so|thus|hence|therefore|i\.e\.|that is|giving|which gives"
    r"|we (?:get|have|find))(?!\w),?\s*(?:that\s+)?"
    r"|(?:所以|因此|从而|于是|综上(?:所述)?|可得|解得|(?<![因缘])故|即(?!可)|∴|⇒|\\(?:Rightarrow|implies|therefore)(?![a-z])|则)[，,：:]?\s*",
    re.IGNORECASE,
)
"""A word behind which the conclusion stands."""


def stated_answer(text: str) -> str | None:
    r"""The answer that a text without box and `####` is, or states as its answer at its end.

    That is: all of it, or its last paragraph, where that is a plain number; what
    stands in `<answer>`, or as "answer" in JSON; of the last line what
    follows "Answer:", the one bold phrase, or what the last sentence concludes. The last number of
    a text is not enough: "6 and 7 make 42" has no final answer.
    """
    if "####" in text or r"\boxed" in text:
        return None
    plain = without_courtesy(text)
    final = _FINAL.match(plain)
    plain = final[0] if final else plain
    if number(plain) is not None:
        return plain
    tagged = [next(filter(None, match.groups()), "") for match in _TAGGED.finditer(plain)]
    if tagged:
        return tagged[-1].strip() or None
    before, _, line = plain.rpartition("\n")
    line = line.strip()
    if not line or len(line) > LONGEST_LINE:
        return None
    if number(line) is not None:
        return None if before.rpartition("\n")[2].strip() else line
    return _of_line(line)


def _of_line(line: str) -> str | None:
    label = _LABEL.fullmatch(line.replace("*", "").strip())
    if label:
        return next(filter(None, label.groups())).strip()
    bold = _BOLD.findall(line)
    if bold:
        return bold[0].strip() if len(bold) == 1 else None
    last = _SENTENCE_END.split(line)[-1]
    if re.match(r"(?:yes|no|是的?|不是|否)[,.，。]", line, re.IGNORECASE):
        last = line
    if len(last) > LONGEST_SENTENCE:
        return None
    match = _STATEMENT.fullmatch(last)
    if match:
        return next(filter(None, match.groups())).rstrip(".。 ")
    concluded = _conclusion(last)
    plain = written.plain(concluded)
    formulas = _formulas(plain)
    sentence = re.search(r"[.!。！]$|^[\u4e00-\u9fff]|^(?:yes|no)[.,!]", last)
    if not (formulas or sentence or concluded != last):
        return None
    named = all(plain[:start].rstrip(" $:")[-1:].isalpha() for start, _ in formulas)
    sure = concluded != last or "=" in plain or len(formulas) < 2 or named
    return concluded if sure or value_in(plain) or r"\[" in last or "$$" in last else None


def _conclusion(sentence: str) -> str:
    """What follows the last "so" of a sentence; all of it where it has none."""
    for marker in reversed(list(_MARKER.finditer(sentence))):
        if re.search(r"\w", sentence[marker.end() :]):
            return sentence[marker.end() :].strip()
    return sentence


_WORD = re.compile(
    r"\\text\s*\{[^{}]*\}|(?<![\\A-Za-z_^+*/=])(?!(?:sin|cos|tan|log|max|min|or|and|sqrt)\b)"
    r"(?:(?=[A-Za-z]*[aeiouyAEIOUY])[A-Za-z]{3,}|(?:[Ii][sntf]|be|of|[Aa]t|to|[Ww]e|[Hh]e|[Ii]t|[Ss]o"
    r"|by|[Oo]n|do|no|No)(?![A-Za-z]))(?:'[a-z]+)?(?![A-Za-z(]|\s*[+*/^_])"
    r"|(?<![A-Za-z\\])[aAI](?= [A-Za-z]{2})|[\u4e00-\u9fff]+"
)
_FORMULA = re.compile(r"\d|\\[a-zA-Z]|[A-Za-z]\s*[=<>]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_IS = re.compile(
    r".*(?:\b(?:is|are|was|were|be|equals|exactly|only)\b|[是为得有到]|等于|只有)", re.DOTALL
)
_UNIT_END = re.compile(
    r"\b(?:more|fewer|less|than|in|of|on|at|for|from|by|with|every|each|the|is|are|was|were|that|which|who|to|left"
    r"|remain\w*|and|altogether|can|will|have|has)\b|[,，;]",
    re.IGNORECASE,
)


def _formulas(text: str) -> list[tuple[int, int]]:
    """Where the stretches between words stand that hold a formula or number."""
    words = [match.span() for match in _WORD.finditer(text)]
    starts = [0, *(end for _, end in words)]
    ends = [*(start for start, _ in words), len(text)]
    spans = zip(starts, ends, strict=True)
    return [span for span in spans if _FORMULA.search(text, *span)]


def value_in(text: str) -> str | None:
    """The value that a sentence in plain spelling says, with its unit; None where it is no
    sentence, or has several."""
    if len(text) > LONGEST_SENTENCE or not _WORD.search(text):
        return None
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    formulas = _formulas(text)
    if not formulas:
        return None
    start, end = formulas[-1]
    if len(formulas) > 1 and not _IS.fullmatch(text[formulas[-2][1] : start].strip(" :,")):
        later = text.rfind("=", start, end)
        if later < 0:
            return None
        start = later + 1
    rest = text[start:].lstrip(" :,;=") if len(formulas) > 1 or start else text
    return _with_unit(rest.strip()) or None


def _with_unit(text: str) -> str:
    word = _WORD.search(text)
    if word and text[: word.start()].rstrip()[-1:] == ",":
        return text[: word.start()].strip(" ,;:.$")
    stop = _UNIT_END.search(text, word.start()) if word else None
    return text[: stop.start() if stop else len(text)].strip(" ,;:.$")
