"""Names of conditions and metrics in a Markdown log: from headings, column titles and prose.

Two places that name the same condition must get the same name, whatever words stand around it.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

from assay.data.reported.markdown import words

Condition = dict[str, str]
"""What fixes a condition: setting or counter -> its value."""


def values_of(text: str) -> dict[str, list[str]]:
    """Every condition that a text names, with all values: `KL_BETA=0.12 vs 0.15` has two."""
    found: dict[str, list[str]] = {}
    for match in words.CONDITION.finditer(text):
        add(found, match[1], [match[2], *_more(words.MORE_VALUES, text, match.end())])
    for match in words.COUNTED.finditer(text):
        key, value = (match[1] or "round").lower(), match[2] or match[3]
        add(found, key, [value, *_more(words.MORE_COUNTED, text, match.end())])
    return found


def add(found: dict[str, list[str]], key: str, values: list[str]) -> None:
    """Add values to a condition, each once."""
    known = found.setdefault(key, [])
    known += [value for value in values if value not in known]


def _more(pattern: re.Pattern[str], text: str, start: int) -> list[str]:
    """The values that follow a first one."""
    found = []
    while match := pattern.match(text, start):
        found.append(match[1])
        start = match.end()
    return found


def condition(texts: Sequence[str]) -> Condition:
    """The one condition that headings and titles fix together; inner ones come last and win."""
    fixed: Condition = {}
    for text in texts:
        for key, values in values_of(text).items():
            if len(values) == 1:
                fixed[key] = values[0]
    return fixed


def condition_name(fixed: Condition) -> str:
    """`epoch 1, KL_BETA=0.12`: counters first."""
    counters = [f"{key} {value}" for key, value in fixed.items() if key in COUNTERS]
    settings = [f"{key}={value}" for key, value in fixed.items() if key not in COUNTERS]
    return ", ".join([*counters, *sorted(settings)])


COUNTERS = ("epoch", "round", "iteration")


def heading_name(title: str) -> str:
    """A heading without numbering, signs and what stands in parentheses."""
    text = words.EMOJI.sub("", words.PARENTHESES.sub("", title)).strip()
    return words.NUMBERING.sub("", text).strip(" :：")


def setting_name(text: str) -> str:
    """The key of a setting: one word for what has many, else the text itself in one form."""
    text = words.EMOJI.sub("", text).strip()
    for key, pattern in words.SETTING_NAMES.items():
        if pattern.match(text):
            return key
    return re.sub(r"[\s.-]+", "_", text.lower())


def setting_value(text: str) -> str:
    """The value of a setting: a file name where there is one, else the text without asides."""
    file = words.FILE.search(text)
    if file:
        return file[0]
    return words.EMOJI.sub("", words.PARENTHESES.sub("", text)).strip()


def quoted_settings(text: str) -> dict[str, str | Decimal]:
    """The settings that free text names."""
    found: dict[str, str | Decimal] = {}
    for key, choices in words.QUOTED.items():
        value = next((value for pattern, value in choices if pattern.search(text)), None)
        if value is not None:
            found[key] = value
    base = {match[1].rstrip(".-") for match in words.BASE.finditer(text)}
    if len(base) == 1:
        found["base"] = base.pop()
    data = data_of(text)
    if len(data) == 1:
        found["data"] = data[0]
    return found


def data_of(text: str) -> list[str]:
    """The data sets with a size that a text names: `hardgen 14k`."""
    found = (f"{name} {size}" for name, size in words.DATA.findall(text) if _is_data(name))
    return list(dict.fromkeys(found))


def _is_data(name: str) -> bool:
    return name.lower() not in words.NOT_DATA


def metric_key(text: str) -> str:
    """A metric's name in one form, for recognising it elsewhere."""
    return re.sub(r"\s|率|使用|的|值|次数|rate$|usage$", "", text.lower())
