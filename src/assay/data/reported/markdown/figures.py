"""Numbers that sentences print: ranges of differences, rates with counts, limits, forecasts."""

import re

from assay.data.reported.markdown import words
from assay.data.reported.markdown.blocks import Line, Section
from assay.data.reported.markdown.draft import Draft
from assay.data.reported.markdown.lists import rate_name
from assay.data.reported.markdown.names import heading_name, metric_key
from assay.data.reported.record import Comparison, Forecast, Metric, Threshold, Verdict


def read_figures(draft: Draft, section: Section) -> None:
    """The figures in the sentences of a section."""
    for line in section.lines:
        _ranges(draft, section, line)
        _rates(draft, section, line)
    _limits(draft, section)
    _forecasts(draft, section)


def _ranges(draft: Draft, section: Section, line: Line) -> None:
    """`vs B（+0.27% ~ +1.0%）`: a range of differences to B, of the section's subject."""
    found = list(words.AGAINST.finditer(line.text))
    if not found:
        return
    subject = heading_name(re.split("[:：]", section.title)[-1])
    sizes = [s for other in section.lines for s in words.SIZES.findall(other.text)]
    items = tuple(int(n) for n in re.split(r"\s*/\s*", sizes[0])) if sizes else ()
    draft.run(subject, line.number)
    for match in found:
        draft.run(match[1], line.number)
        points = (words.decimal(match[2]), words.decimal(match[3]))
        says: Verdict = "better" if max(points) > 0 else "worse"
        part = Comparison(
            run=subject,
            control=match[1],
            says=says,
            points=points,
            items=items,
            line=line.number,
        )
        draft.add("comparisons", part)


def _rates(draft: Draft, section: Section, line: Line) -> None:
    """Percentages with their counts in running text."""
    for match in words.RATE.finditer(line.text):
        name = rate_name(section, line)
        metric = Metric(
            name=name,
            steps=(0,),
            values=(words.decimal(match[1]),),
            counts=(int(match[2]),),
            totals=(int(match[3]),),
            line=line.number,
        )
        draft.metrics.setdefault(name, metric)


def _limits(draft: Draft, section: Section) -> None:
    """Limits that a rate is said to keep, now or at the step that a line before announces."""
    rates = {metric_key(m.name): m for m in draft.metrics.values() if m.counts and m.totals}
    step = None
    for line in section.lines:
        announced = words.AT_STEP.match(line.text)
        step = int(announced[1]) if announced else step
        match = words.LIMIT.match(line.text)
        metric = rates.get(metric_key(match[1])) if match else None
        if match is None or metric is None or words.OPEN_BOX.match(line.text):
            continue
        above = match[2] in ">≥"
        limit = words.decimal(match[3])
        part = Threshold(
            metric=metric.name,
            above=limit if above else None,
            below=None if above else limit,
            step=step,
            line=line.number,
        )
        draft.add("thresholds", part)


def _forecasts(draft: Draft, section: Section) -> None:
    """`$0.0017/step x 500 steps = $0.85`, where the report has one running total."""
    totals = [m for m in draft.metrics.values() if m.cumulative and m.values and not m.totals]
    for line in [*section.lines, *section.code]:
        match = words.PER_STEP.search(line.text)
        if match and len(totals) == 1:
            part = Forecast(
                metric=totals[0].name,
                step=int(match[2]),
                says=words.decimal(match[3]),
                line=line.number,
            )
            draft.add("forecasts", part)
