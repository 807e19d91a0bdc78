"""Reads numbers that are spelt, in English and in Chinese, at the beginning of a text.

"twenty-one apples" is "21 apples", "two thirds" 2/3, 二分之一 1/2, 十二个 12个. A text that only
begins with the sign of a number, such as 三角形, is left as it is.
"""

import re

_ONES = re.findall(
    r"\S+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen",
)
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SMALL = {word: n for n, word in enumerate(_ONES)} | {w: 10 * n for n, w in enumerate(_TENS, 2)}
SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12, "万": 10**4, "亿": 10**8,
}  # fmt: skip
"""Words that multiply the number before them."""
_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6}
_PARTS |= {"seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10}
_PARTS |= {f"{word}s": n for word, n in _PARTS.items() if word != "halves"}
_WORD = re.compile(r"[A-Za-z]+")
SPELT = re.compile(
    rf"\b(?:half|{'|'.join(word for word in _SMALL if word != 'one')})\b"
    r"|百分之[一-龥]|(?<=[是为有到得])[一二两三四五六七八九十百]+(?!样|些|定)",
    re.IGNORECASE,
)
"""Where a spelt number begins in a sentence."""
_DIGITS = {sign: n for n, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_CHINESE = "零〇一二两三四五六七八九十百千万亿"
_RUN = re.compile(rf"[{_CHINESE}]+")
_QUOTIENT = re.compile(rf"([{_CHINESE}]+)又([{_CHINESE}]+)分之([{_CHINESE}]+)")
_MEASURES = re.compile(
    r"(?:点[零一二三四五六七八九]+)?(?:个|只|本|人|名|棵|页|次|种|天|年|岁|支|条|辆|张|元|块|角|分|米|厘米|千米|公里|毫米"
    r"|千克|克|吨|升|毫升|小时|分钟|秒|平方.*|立方.*|度|倍|箱|袋|件|位|套|间|头|匹|朵|颗|枚|盒|组|排|班|对|双"
    r"|月|日|号|点)?"
)
"""What may follow a spelt number for it to be one."""


def with_digits(text: str) -> str:
    """`text` with the spelt number that it is, or begins with, in digits."""
    return _english(text) if text[:1].isascii() else _chinese(text)


def _english(text: str) -> str:
    said = text.strip().lower()
    negative = re.match(r"(?:negative|minus)\s+(?=[a-z])", said)
    start = negative.end() if negative else 0
    total, group, at, seen, last = 0, 0, start, 0, ""
    for match in _WORD.finditer(said, start):
        word = match[0]
        if said[at : match.start()].strip(" -"):
            break
        if word in _SMALL:
            if last in _ONES or (last in _TENS and not 0 < _SMALL[word] < 10):
                break
            group += _SMALL[word]
        elif word in SCALES and seen:
            if word == "hundred":
                group *= 100
            else:
                total, group = total + group * SCALES[word], 0
        elif word in _PARTS and (seen or word == "half") and " past" not in said:
            value = (total + group) if seen else 1
            return _joined(f"{'-' if negative else ''}{value}/{_PARTS[word]}", said[match.end() :])
        elif not (word == "and" and last in SCALES):
            break
        at, seen, last = match.end(), seen + 1, word
    if not seen or last == "and":
        return text
    return _joined(f"{'-' if negative else ''}{total + group}", text.strip()[at:])


def _joined(number: str, rest: str) -> str:
    return number + rest if not rest or rest[0] in " ,.;-" else f"{number} {rest}"


def _chinese(text: str) -> str:
    negative = text.startswith("负")
    said = text[negative:]
    discount = re.fullmatch(r"打?([一二三四五六七八九])([一二三四五六七八九])?折", said)
    if discount:
        return ".".join(str(_DIGITS[sign]) for sign in filter(None, discount.groups())) + "折"
    whole = re.fullmatch(rf"百分之([{_CHINESE}]+)", said)
    if whole:
        return f"{'-' * negative}{_value(whole[1])}%"
    mixed = _QUOTIENT.fullmatch(said)
    if mixed:
        return f"{'-' * negative}{_value(mixed[1])} {_value(mixed[3])}/{_value(mixed[2])}"
    parts = re.fullmatch(rf"([{_CHINESE}]+)分之([{_CHINESE}]+)(.*)", said)
    if parts:
        return f"{'-' * negative}{_value(parts[2])}/{_value(parts[1])}{parts[3]}"
    run = _RUN.match(said)
    if run is None or not _MEASURES.fullmatch(said, run.end()):
        return text
    point = re.match(r"点([零一二三四五六七八九]+)", said[run.end() :])
    decimals = "".join(str(_DIGITS[sign]) for sign in point[1]) if point else ""
    rest = said[run.end() + (point.end() if point else 0) :]
    return f"{'-' * negative}{_value(run[0])}{'.' if decimals else ''}{decimals}{rest}"


def _value(run: str) -> int:
    """The number of 一百零五, or of the digits 二〇二四."""
    if not set(run) - set(_DIGITS):
        return int("".join(str(_DIGITS[sign]) for sign in run))
    total = section = digit = 0
    for sign in run:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
        elif sign in _PLACES:
            section, digit = section + (digit or 1) * _PLACES[sign], 0
        else:
            total, section, digit = (total + section + digit) * SCALES[sign], 0, 0
    return total + section + digit
