r"""Finds the final answer in a text, in a box or as a sentence says it, and the value in it.

A model without a box writes "So she makes $18 every day." or 答：每人分到9个。 The answer is
what the last sentence says: after "so" and the like, where there is such a word. Its value is what
stands behind "is", before "is", or the only formula; a sentence with several has none, unless they
are named. Pure string work on texts of bounded length.
"""

import re
from fractions import Fraction

from assay.data.hashing import sha256_text
from assay.labs.math import written
from assay.labs.math.units import with_digits
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
    return final_place(text)[0]


def final_place(text: str) -> tuple[str | None, int, int]:
    """The final answer, and where its boxes or its line begin and end."""
    box, start, box_end = last_boxed(text)
    marker = text.rfind("####")
    marked = _MARKED.match(text, marker) if marker > box_end else None
    if marked is None:
        return box, start, box_end
    return without_courtesy(marked[1]) or None, *marked.span()


_COURTESY = re.compile(
    r"(?:\n\s*-{3,}\s*|(?<=[.!?。！？*$)\]\n])\s*)[*_(]*"
    r"(?!.*\d)(?:(?:please )?(?:let (?:me|us) know|feel free|do(?:n't| not) hesitate)"
    r"|thanks?\b|good luck|(?:(?:I|we) )?(?:really )?hope (?:that )?(?:it|th|my)"
    r"(?!.*(?:\bnot\b|n't|wrong|incorrect))"
    r"|(?:if|do|would|should) you\b(?=.*(?:question|help|expl|clarif))"
    r"|(?:is there|any)\b(?=.*(?:else|question))"
    r"|希望(?=.*帮)|(?:如有|如果[你您]|请)(?=.*(?:问|告诉))|谢谢)[^\n.!?。！？]*[^\w$\\]*$",
    re.IGNORECASE,
)
"""A polite sentence at the end of a text, without the number of an answer."""


def without_courtesy(text: str) -> str:
    """A text without the polite sentences at its end, such as Minerva's "I hope it is correct"."""
    text = text.strip()
    while match := _COURTESY.search(text, max(0, len(text) - 300)):
        text = text[: match.start()].rstrip()
    return text


def last_boxed(text: str) -> tuple[str | None, int, int]:
    r"""What the last closed boxes that belong together hold, and their bounds; else (None, -1, -1).

    `\boxed 42` is a box too, and `\fbox{42}`.
    Braces nest to any depth; `\{` and `\}` are text. A box inside a box is what it holds.
    """
    together: list[str] = []
    first = last = -1
    for match in _BOX.finditer(text):
        if match.start() < last:
            continue
        end = match.end() if match["bare"] else _closing_brace(text, match.end())
        if end < 0:
            break  # every later box lies inside this unclosed one
        if last < 0 or not _JOINED.fullmatch(text, last, match.start()):
            together, first = [], match.start()
        together.append(match["bare"] or _unboxed(text[match.end() : end].strip()))
        last = end if match["bare"] else end + 1
    return ", ".join(dict.fromkeys(filter(None, together))) or None, first, last


def _unboxed(text: str) -> str:
    for _ in range(4):
        inner = _BOX.search(text)
        end = _closing_brace(text, inner.end()) if inner and not inner["bare"] else -1
        if inner is None or end < 0:
            break
        text = text[: inner.start()] + text[inner.end() : end].strip() + text[end + 1 :]
    return text


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
        return decimal_text(value)
    text = plain(answer) if len(answer) <= _LONGEST_READ else answer
    if len(text) <= LONGEST_FACT:
        return text
    return f"{text[: LONGEST_FACT - 9]}…{sha256_text(text)[:8]}"


def decimal_text(value: Fraction) -> str:
    """A decimal fraction without zeros at its end: "-5.5", "1450"."""
    places = 0
    while value.denominator != 1:
        value, places = value * 10, places + 1
    digits = str(abs(value.numerator)).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


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
_VALUE_START, _STOP = re.compile(r"\w|\\[a-z]"), re.compile(rf"{_SENTENCE_END.pattern}|\n")
_EXPLICIT = re.compile(
    r"\b(?:(?:the|my|our)\s+(?:(?:final|correct|right)\s+)*answer|(?:correct|right|final)\s+"
    r"(?:answer|value|result|one))\s+(?:is|must be|should be)\b:?|\banswer\**\s*[:：]"
    r"|答案?\s*(?:[:：]|[是为])",
    re.IGNORECASE,
)
"""Where an answer is called one."""
_RETRACTS = re.compile(
    r"\b(?:not|no|wrong|incorrect|mis\w+|error|oops|wait|hmm+|sorry|actually|right|correct|correction"
    r"|thought|instead|rather|should|would|must|but|however|maybe|perhaps|or|it is|it's)\b|n't\b"
    r"|(?:^|[.\n])\W{0,9}\d[\d.,]{0,30}\W{0,9}$|\bhope\b|[不错应或]|其实|等等",
    re.IGNORECASE,
)
"""What a remark behind an answer does not hold, unless it takes the answer back."""
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|cannot|unlike|(?:student|one|friend)s? (?:said|says|say|claims?))"
    r"|n't|[不非]是?)"
    r"(?:\s+(?:be|equals?|to|the|an?|answer|is|simply|just|value))*[^\w.\n]*$",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(
    r"[^\w.\n]{0,20}(?:(?:is|was|would be|[.!。\n]\W{0,9}"
    r"(?:(?:no|wait|but|actually|hmm+|sorry|however|oh)\W{1,9}){0,4}"
    r"(?:that|this|it)(?:'s| is| was))\s+(?:\w+ly\s+)?(?:wrong|incorrect|false|a mistake"
    r"|not\s+(?:right|correct|true|valid|(?:the|my|our) (?:\w+ )?answer)(?!\s+to\b))"
    r"|isn't (?:right|correct)|[^.!?。？\n]*[?？]|[，,。]?(?:这?是?)?(?:不对|错))",
    re.IGNORECASE,
)
"""What denies the answer that it stands around."""
_ALTERNATIVE = re.compile(
    r"[\s$]*(\\?%)?[\s$]*(?:\\text\s*\{\s*)?\bor\b[\s}$]*(-?\d+(?:\.\d+)?)(\\?%)?"
    r"(?=\s*(?:\$|\\[)\]]|[.,;]?\s*$|[.;\n]))"
)
"""A number that stands behind a plain one as another answer: "\\boxed{20}\\% or 25\\%"."""
_PLAIN = re.compile(r"(-?\d+(?:\.\d+)?)(\\?%)?")
_NUMBER = re.compile(r"-?(?:\d|\.\d)[\d.]*")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_REMARK = re.compile(r"\s*[（(][^()（）]*[)）][.。]?$")
_DOUBT = re.compile(
    r"\?|？|\b(?:if|doubt|maybe|perhaps|possibly|wait|check\w*|suppose|assum\w+|would"
    r"|answer (?:could|might|may))\b"
    r"|可能|如果|假如|假设",
    re.IGNORECASE,
)
_BLUR = re.compile(
    r"\b(?:not|never|isn't|about|approximately|either|than)\b|不|约|或", re.IGNORECASE
)
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
    if "####" in text or final_answer(text) or r"\boxed" in text:
        return None
    plain = without_courtesy(text)
    if number(plain) is not None:
        return plain
    tagged = [next(filter(None, match.groups()), "") for match in _TAGGED.finditer(plain)]
    if tagged:
        return tagged[-1].strip() or None
    lines = _without_remarks(plain).splitlines()[-12:]
    line = lines[-1].strip() if lines else ""
    if not line or len(line) > LONGEST_LINE:
        return None
    if number(line) is not None:
        return None if lines[-2].strip() else line
    return _of_line(line)


def _explicit(text: str) -> list[tuple[str, int]]:
    """What a text calls its answers, to the end of their sentences, and where these end."""
    statements = []
    for match in _EXPLICIT.finditer(text):
        value = _VALUE_START.search(text, match.end())
        stop = _STOP.search(text, value.start()) if value else None
        end = stop.start() if stop else len(text)
        statements.append((text[match.end() : end].strip(" *:$.。"), end))
    return statements


def is_taken_back(text: str, answer: str, start: int, end: int) -> bool:
    r"""Whether the sentence around an answer at `start` to `end` denies it, such as "It is not
    \boxed{12}.", or a later one calls another the answer, such as "The correct answer is 13."."""
    if _DENIED_BEFORE.search(text, max(0, start - 80), start) or _DENIED_BEHIND.match(
        text, end, end + 300
    ):
        return True
    if _has_other_value(answer, _ALTERNATIVE.match(text, end, end + 80)):
        return True
    numbers = _numbers(answer)
    for stated, _ in _explicit(text[end : end + 4_000]):
        denial = re.match(r"not\b|不", stated) is not None
        other = _numbers(stated)
        same = other[: len(numbers)] == numbers and not re.search(r"\bor\b|或", stated)
        if numbers and other and same == denial:
            return True
    return False


def _has_other_value(answer: str, other: re.Match[str] | None) -> bool:
    own = _PLAIN.fullmatch(answer)
    if other is None or own is None or bool(other[1] or own[2]) != bool(other[3]):
        return False
    return float(other[2]) != float(own[1])


def _numbers(text: str) -> list[float]:
    plain = written.plain(text[:LONGEST_SENTENCE])
    plain = plain if _NUMBER.search(plain) else with_digits(plain)
    return [float(digits.strip(".")) for digits in _NUMBER.findall(plain) if digits.count(".") < 2]


def _without_remarks(text: str) -> str:
    """A text without what follows its last explicit answer, unless that takes the answer back."""
    value, end = next(iter(_explicit(text[-2_000:])[::-1]), ("", 0))
    end += max(0, len(text) - 2_000)
    short = re.search(r"\d", value) and len(value.split()) < 5
    return text[:end] if short and not _RETRACTS.search(text, end) else text


def _of_line(line: str) -> str | None:
    label = _LABEL.fullmatch(line.replace("*", "").strip())
    if label:
        return next(filter(None, label.groups())).strip()
    unmarked = _REMARK.sub("", line)
    bold = list(_BOLD.finditer(unmarked))
    if bold:
        before = unmarked[: bold[0].start()]
        before = _conclusion(_SENTENCE_END.split(before)[-1])
        sure = len(bold) == 1 and not (_DOUBT.search(before) or _BLUR.search(before))
        return bold[0][1].strip() if sure else None
    last = _SENTENCE_END.split(line)[-1]
    if re.match(r"(?:yes|no|是的?|不是|否)[,.，。]", line, re.IGNORECASE):
        last = line
    if len(last) > LONGEST_SENTENCE or _DOUBT.search(last):
        return None
    match = _STATEMENT.fullmatch(last)
    stated = next(filter(None, match.groups())).rstrip(".。 ") if match else ""
    if match:
        return stated if re.search(r"\w", stated) and not _BLUR.search(last) else None
    concluded = _conclusion(last)
    plain = written.plain(concluded)
    formulas = _formulas(plain)
    if (
        not formulas
        and concluded == last
        and not re.search(r"[.!。！]$|^[\u4e00-\u9fff]|^(?:yes|no)[.,!]", last)
    ):
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
