"""Reads scores from short lines: `- sft: 44.5%`, `- 26.5%` under a run's heading, `178 of 400`.

A line is a score where its label is a run or a benchmark and the rest of it is one number.
"""

import re
from decimal import Decimal

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.blocks import Line, Section
from assay.data.reported.reading.columns import role_of, setting_of, title_parts
from assay.data.reported.reading.draft import Draft, Note, Score, known
from assay.data.reported.reading.figures import OPEN, WHOLE, Figure, clean, figure, signed
from assay.data.reported.reading.name_forms import heading_name, key_of, tidy
from assay.data.reported.reading.sizes import sentences
from assay.data.reported.reported_record import Change, Metric

LABELLED = re.compile(r"^(.{1,60}?)\s*(?:[:：=|]|\s[—–-]|→)\s*(.+)$")
OPEN_LINE = re.compile(
    r"^[（(\[]?\s*(?:tbd|tba|to-?do|to be (?:filled in|done)|not (?:run|finished) yet|pending"
    r"|待填充?|待补充?|待跑|未完成)(?:\W{0,2}(?:待跑|待填充?|pending))?\s*[)）\]]?[.。]?$",
    re.I,
)
SETTING = re.compile(r"^([^\d=:：]{1,20}?)\s*(?:([=:：])\s*|\s)([^\s%％]{1,20})$")
SAID = re.compile(r"(?<=[\d%％)）])\s*[(（][^()（）]*[^\W\d_]{2,}[^()（）]*[)）]$")
"""Words in parentheses after a score."""
RATE = re.compile(
    rf"(\d+(?:\.\d+)?)\s*[%％]\s*[(（=,，]\s*(?:i\.e\.,? |or |即)?({WHOLE})\s*(?:/|／|of"
    rf"|out of)\s*({WHOLE})"
    rf"|({WHOLE})(?:\s+[a-z]+){{0,2}}\s*(?:/|／|of|out of)\s*(?:the )?({WHOLE})(?:\s+\w+){{0,2}}"
    r"\s*[)）]?\s*(?:[(（=]|->|→|or|is|are|即"
    r"|[,，]\s*(?:i\.e\.|or|accuracy|准确率|正确率|通过率))\s*(?:i\.e\.,? |or |即"
    r"|为)?(\d+(?:\.\d+)?)\s*[%％]"
    r"(?!\s*(?:CI|conf|interval|置信|Wilson|区间|limits?|bounds?))",
    re.I,
)
"""A percentage beside its counts, in either order."""


def read_lists(draft: Draft, sections: list[Section]) -> None:
    """The scores in the list items of all sections."""
    labels: dict[str, set[int]] = {}
    for section in sections:
        for line in section.items:
            if found := _labelled(line):
                labels.setdefault(key_of(found[0]), set()).add(section.line)
    for section in sections:
        _repeats(draft, section)
        for line in section.items:
            _setting(draft, section, line)
            _described(draft, line)
            found = _labelled(line)
            if not found:
                _gain(draft, section, line)
            if found:
                _score(draft, section, line, *found, again=len(labels[key_of(found[0])]) > 1)


def _repeats(draft: Draft, section: Section) -> None:
    """Bare percentages under a heading are its run's repeats."""
    read = [figure(line.text) for line in section.items]
    if (
        not section.items
        or not section.title
        or not all(r and r.percent and r.values for r in read)
    ):
        return
    for line, each in zip(section.items, read, strict=True):
        assert each is not None
        if all(0 <= value <= 100 for value in each.values):
            name = heading_name(section.title)
            draft.scores.append(
                Score(
                    name,
                    "",
                    line.number,
                    each.values,
                    each.count,
                    each.total,
                    place="",
                    repeat=True,
                )
            )


def _setting(draft: Draft, section: Section, line: Line) -> None:
    """`- learning rate: 1e-5` under the heading of a run."""
    match = LABELLED.match(line.text)
    key = setting_of(match[1]) if match else ""
    if match and key and section.title and not (figure(match[2]) or Figure()).rated:
        draft.settings.append((heading_name(section.title), key, clean(match[2]), line.number))


def _described(draft: Draft, line: Line) -> None:
    """`- run: lr 1e-5, top-k = 5`: settings of a run, each by a known name or with a sign."""
    match = LABELLED.match(line.text)
    for part in re.split(r"[,，;；、]\s*", match[2]) if match else ():
        pair = SETTING.match(part.strip())
        key = setting_of(pair[1]) if pair else ""
        if pair and match and (key or (pair[2] and role_of(pair[1]) is None)):
            told = (tidy(match[1]), key or key_of(pair[1]), pair[3].rstrip(".。"), line.number)
            draft.settings.append(told)


def _labelled(line: Line) -> tuple[str, Figure] | None:
    """The label and the number of a line; None for lines that are no score."""
    match = LABELLED.match(line.text)
    if match is None:
        return None
    label, rest = clean(match[1]), match[2].replace("|", " ").strip().rstrip(".。;；")
    title, items, _ = title_parts(label)
    role = role_of(title)
    plain = bool(vocabulary.CONTROL.fullmatch(title))
    if not plain and role and role[0] not in ("score", "run", "benchmark", "correct"):
        return None
    shown = re.split(r"[,，;；]\s+(?!n\s*=)|\s+[—–-]\s+|。", rest)[0]
    read = figure(shown) or _counted(SAID.sub("", rest))
    scored = (role is not None and role[0] == "score") or bool(known(title))
    if read is None or not (read.rated or (scored and read.values)):
        return None
    values = read.values
    if not read.percent and values and all(value <= 1 for value in values):
        values = tuple(value.scaleb(2) for value in values)
    elif not read.percent and values and not all("." in f"{value:f}" for value in values):
        return None
    if any(not 0 <= value <= 100 for value in values):
        return None
    return label, Figure(values, True, read.count, read.total or items, read.spread)


def _gain(draft: Draft, section: Section, line: Line) -> None:
    """`- gain: +9.0 points` under two scores is the change from the first to the second."""
    match = LABELLED.match(line.text)
    says = signed(match[2]) if match and vocabulary.PARTS["change"].fullmatch(match[1]) else None
    here = [s for s in draft.scores if s.place == section.scope(line.number)]
    if says is None or len(here) != 2 or any(len(s.values) != 1 for s in here):
        return
    (before,), (after,) = (score.values for score in here)
    of = " → ".join(score.run for score in here)
    draft.add("changes", Change(of=of, before=before, after=after, says=says[0], line=line.number))


def _counted(text: str) -> Figure | None:
    """A score with its counts; None for anything else."""
    read = figure(text)
    return read if read and read.count is not None else None


def _score(
    draft: Draft, section: Section, line: Line, label: str, read: Figure, again: bool
) -> None:
    """Add a line's score: of the run that its label or its heading names."""
    title = title_parts(label)[0]
    role = role_of(title)
    heading = heading_name(section.title)
    cell = role[1] if role and role[0] == "score" else title
    scored = bool(role and role[0] == "score")
    benchmark = bool(known(title)) or (
        bool(vocabulary.BENCH_LIKE.search(cell)) and not vocabulary.RUN_LIKE.search(cell)
    )
    if (
        (scored and not (cell and vocabulary.RUN_LIKE.search(cell)))
        or benchmark
        or (again and not vocabulary.RUN_LIKE.search(title) and not known(heading))
    ):
        run, of = heading, tidy(cell)
    else:
        run, of = tidy(cell or title), _benchmark_of(section)
    if run and (read.values or read.count is not None):
        draft.scores.append(
            Score(
                run,
                of,
                line.number,
                read.values,
                read.count,
                read.total,
                place=section.scope(line.number),
            )
        )


def _benchmark_of(section: Section) -> str:
    """The one common benchmark that a heading names."""
    found = known(section.title)
    return found[0].name if len(found) == 1 else ""


def read_asides(draft: Draft, sections: list[Section]) -> None:
    """Words in parentheses of a heading are a note on the run that the heading names."""
    runs = {key_of(name): name for name in draft.run_names()}
    for section in sections:
        name = runs.get(key_of(heading_name(section.title)))
        asides = re.findall(r"[(（]([^()（）]+)[)）]", section.title)
        if name and asides:
            draft.notes.append(Note(name, "", " ".join(asides), section.line))


def read_rates(draft: Draft, section: Section) -> None:
    """Percentages beside their counts in running text: scores of the run that stands before them.

    Where the log has no table of scores; otherwise each is checked against its own counts.
    """
    for line in section.lines:
        for sentence in sentences(line.text):
            found = list(RATE.finditer(sentence))
            for match, start in zip(found, [0, *(m.end() for m in found)], strict=False):
                rate = _rate(match)
                if rate is None or any(s.line == line.number and s.place for s in draft.scores):
                    continue
                value, right, items = rate
                named = {
                    m[0].lower() for m in vocabulary.TOLD.finditer(sentence, start, match.start())
                }
                if draft.tableless and len(named) == 1:
                    draft.scores.append(
                        Score(tidy(named.pop()), "", line.number, (value,), right, items)
                    )
                    continue
                name = (
                    sentence[start : match.start()].strip(" :：,，(（") or section.title or "rate"
                )
                if name not in draft.metrics:
                    draft.metrics[name] = Metric(
                        name=name,
                        steps=(0,),
                        values=(value,),
                        counts=(right,),
                        totals=(items,),
                        line=line.number,
                    )


def _rate(match: re.Match[str]) -> tuple[Decimal, int, int] | None:
    """The percentage, the count and the total of a rate."""
    value, count, total = match[1] or match[6], match[2] or match[4], match[3] or match[5]
    right, items = (int(n.replace(",", "")) for n in (count, total))
    return (Decimal(value), right, items) if 0 < items >= right else None


def read_open(draft: Draft, section: Section) -> None:
    """Lines that are to be filled in, and cells that are so in tables without scores."""
    place = " / ".join(section.path[-2:]) or draft.about
    pending = [
        line for line in section.lines if OPEN_LINE.match(line.text) or OPEN.match(line.text)
    ]
    if pending:
        draft.left_open(place, len(pending), pending[0].number)
    for table in section.tables:
        cells = [(row.number, cell) for row in table.rows for cell in row.cells]
        found = [number for number, cell in cells if OPEN.match(clean(cell))]
        if found:
            draft.left_open(place, len(found), found[0])
