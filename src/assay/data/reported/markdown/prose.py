"""What sentences claim: settings of runs, comparisons, effects, directions and causes.

Only forms that can be told apart safely are read; everything else in a sentence is left alone.
"""

import re
from collections.abc import Iterator

from assay.data.reported.markdown import words
from assay.data.reported.markdown.blocks import Line, Section
from assay.data.reported.markdown.draft import Draft, compare, has_control, name_condition
from assay.data.reported.markdown.lists import verdict
from assay.data.reported.markdown.names import (
    COUNTERS,
    data_of,
    heading_name,
    metric_key,
    values_of,
)
from assay.data.reported.record import (
    Cause,
    Comparison,
    Effect,
    Mention,
    Metric,
    Verdict,
)

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.A)
CLAUSE = re.compile(r"[，,。；;]")


def read_prose(draft: Draft, section: Section) -> None:
    """Everything that the lines of a section claim."""
    for line in section.lines:
        names = named_runs(draft, line.text)
        own = heading_name(section.title) in draft.runs
        if names and not own:
            _mentions(draft, line, names)
        if not words.OPEN_BOX.match(line.text):
            _beats(draft, section, line)
            if not names:
                _effect(draft, line)
        _direction(draft, line)
        _cause(draft, section, line)
        _never_run(draft, line)


def named_runs(draft: Draft, text: str) -> list[str]:
    """The runs that a text names, in its order, each once; only names that are one word."""
    names = {name for name in draft.runs if IDENTIFIER.fullmatch(name)}
    return [name for name in dict.fromkeys(IDENTIFIER.findall(text)) if name in names]


def _mentions(draft: Draft, line: Line, names: list[str]) -> None:
    """Settings, verdicts and comparisons of runs in a line outside their own sections."""
    data = data_of(line.text)
    if len(data) == 1:
        for name in names:
            said = Mention(
                of=name,
                place=f"line {line.number}",
                settings={"data": data[0]},
                line=line.number,
            )
            draft.add("mentions", said)
    for name, says in _verdicts(line.text, names):
        run = draft.runs[name]
        run.says = run.says or says
    if len(names) > 1 and words.RATHER.search(line.text):
        _comparisons(draft, line, names)


def _verdicts(text: str, names: list[str]) -> Iterator[tuple[str, Verdict]]:
    """The effect said of a run: of the only one in the line, else of the only one in a clause."""
    for part in [text] if len(names) == 1 else CLAUSE.split(text):
        inside = [name for name in names if name in IDENTIFIER.findall(part)]
        says = verdict(part)
        if len(inside) == 1 and says:
            yield inside[0], says


def _comparisons(draft: Draft, line: Line, names: list[str]) -> None:
    """`A ... 比 B ... 差`: the first run against those that follow a word of comparison."""
    first, *others = names
    pieces = words.RATHER.split(line.text)
    for word, before, piece in zip(pieces[1::2], pieces[:-1:2], pieces[2::2], strict=True):
        after = [name for name in others if name in IDENTIFIER.findall(piece)]
        # "A 比 B 差" says how after B, "A is worse than B" before it.
        says = _direction_of(piece if word == "比" else before)
        if after and says:
            found = Comparison(run=first, control=after[0], says=says, line=line.number)
            draft.add("comparisons", found)


def _direction_of(text: str) -> Verdict | None:
    if words.WORSE.search(text):
        return "worse"
    return "better" if words.BETTER.search(text) else None


def _effect(draft: Draft, line: Line) -> None:
    """`WHAT: no effect`, `proves that WHAT works`: a claim of an effect."""
    match = words.PROVES.search(line.text)
    if match:
        draft.add("effects", Effect(what=match[1].strip(), says="better", line=line.number))
        return
    labelled = words.LABELLED.match(line.text)
    start = words.HEDGED.match(labelled[2]) if labelled else None
    says = verdict(start[0]) if start else None
    if labelled and says:
        draft.add("effects", Effect(what=labelled[1].strip(), says=says, line=line.number))


def _beats(draft: Draft, section: Section, line: Line) -> None:
    """A baseline that is said to be beaten, in a report that has no scores of one."""
    if words.BEATS.search(line.text) and not has_control(draft):
        what = heading_name(section.title) or draft.about
        draft.add("effects", Effect(what=what, says="better", line=line.number))


def _direction(draft: Draft, line: Line) -> None:
    """What a line concludes from the rise or fall of a metric of a training table."""
    if not (words.RISES.search(line.text) or words.FALLS.search(line.text)):
        return
    reads = next((reads for pattern, reads in words.READS if pattern.search(line.text)), None)
    if reads is None:
        return
    # The metric that the line begins with is the one it is about.
    places = [(found.start(), name) for name in draft.metrics if (found := _find(name, line.text))]
    if places:
        name = min(places)[1]
        metric = draft.metrics[name]
        if metric.reads is None:
            update = {"reads": reads, "line": line.number}
            draft.metrics[name] = metric.model_copy(update=update)


def _find(name: str, text: str) -> re.Match[str] | None:
    """Where a metric stands in a text as a word of its own."""
    return re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_=])", text)


def _cause(draft: Draft, section: Section, line: Line) -> None:
    """`leading to X` in the lines about Y, where both are counted."""
    match = words.LEADS_TO.search(line.text)
    if not match:
        return
    before = metric_key(" ".join((section.title, line.text[: match.start()])))
    after = line.text[match.end() :].lower()
    counted = [m for m in draft.metrics.values() if m.counts]
    causes = [m for m in counted if metric_key(m.name) in before]
    effects = [m for m in counted if m not in causes and _keyword(m) in after]
    if causes and effects:
        part = Cause(cause=causes[0].name, effect=effects[0].name, line=line.number)
        draft.add("causes", part)


def _keyword(metric: Metric) -> str:
    """The Latin word of a metric's name, else its whole name in one form."""
    word = re.search(r"[A-Za-z]{4,}", metric.name)
    return word[0].lower() if word else metric_key(metric.name)


def _never_run(draft: Draft, line: Line) -> None:
    """Values of a setting that are spoken of together, where some have no result."""
    if words.PLANS.search(line.text):
        return
    scored = [run for run in draft.runs.values() if run.scores]
    keys = {key for run in scored for key in run.condition if key not in COUNTERS}
    for key, values in values_of(line.text).items():
        if key not in keys or len(values) < 2:
            continue
        tried = [v for v in values if _has_results(draft, key, v)]
        for value in values:
            if value not in tried and tried:
                control = name_condition(draft, {key: tried[0]}, line.number)
                compare(draft, f"{key}={value}", control, line.number, (key.lower(),))


def _has_results(draft: Draft, key: str, value: str) -> bool:
    return any(run.scores and run.condition.get(key) == value for run in draft.runs.values())


def pairs_of_conditions(draft: Draft, found: list[Section]) -> None:
    """`KL_BETA=0.12 vs 0.15` in a heading: every two scored runs that differ in that alone."""
    keys = {k for s in found for k, values in values_of(s.title).items() if len(values) > 1}
    scored = [(name, run) for name, run in draft.runs.items() if run.scores and run.condition]
    for key in sorted(keys):
        for (first, before), (second, after) in _two_by_two(scored):
            left, right = dict(before.condition), dict(after.condition)
            if left.pop(key, None) != right.pop(key, None) and left == right:
                compare(draft, second, first, after.line, (key.lower(),))


def _two_by_two(items: list) -> Iterator[tuple]:
    for index, first in enumerate(items):
        yield from ((first, second) for second in items[index + 1 :])


def outermost(found: list[Section]) -> str:
    """The report's title: its first heading."""
    return next((s.title for s in found if s.path), "")
