"""The progress of a run in the terminal: the same sections as on the page, as rich renderables.

Prints nothing itself. Text from files is made safe where the sections are made.
"""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from assay.lab.monitor.progress import Progress
from assay.report.progress_content import Section, progress_section
from assay.report.words import words

STYLES = {"error": "bold red", "warning": "yellow", "note": "bold"}
STATES = {"better": "green", "worse": "red", "undecided": "yellow", "": "dim"}


def progress_view(found: Progress, lang: str = "en") -> RenderableType:
    """Changes, findings, forecasts, milestones, guards and the gate; the table comes last, because
    it is what a small terminal may cut.
    """
    w = words(lang)
    section = progress_section(found, w)
    parts: list[RenderableType] = [
        Text(section["title"], "bold"),
        Text(section["about"], "dim"),
        *(Text(f"- {line}") for line in section["changes"]),
    ]
    for finding in section["findings"]:
        new = f" ({w('progress.new')})" if finding["new"] else ""
        style = STYLES[finding["kind"]]
        parts.append(Text.assemble((finding["severity"], style), f"{new}: {finding['what']}"))
        parts.append(Text(f"    {finding['evidence']}", "dim"))
        parts.append(Text(f"    {w('progress.advice')}: {finding['fix']}"))
    parts += [Text(line) for line in section["forecasts"]]
    for each in section["milestones"]:
        about = f" ({each['about']})" if each["about"] else ""
        line = Text.assemble((each["state"], STATES[each["kind"]]), " ", (each["name"], "bold"))
        parts.append(line.append(f"{about}: {each['expected']}. {each['value']}".rstrip(". ")))
    for each in section["guards"]:
        line = Text.assemble((each["state"], STATES[each["kind"]]), " ", (each["name"], "bold"))
        parts.append(line.append(f": {each['condition']}"))
    if section["promotion"]:
        parts.append(Text(section["promotion"]))
    if section["stopped"]:
        parts.append(Text(section["stopped"], "bold red"))
    return Group(*parts, metric_table(section, lang))


def metric_table(section: Section, lang: str) -> Table:
    """The metrics at both steps, with change and trend."""
    w = words(lang)
    titles = [w("progress.metric"), section["first"], section["last"]]
    titles += [w("progress.change"), w("progress.trend")]
    table = Table(*titles, box=None, header_style="bold")
    for row in section["rows"]:
        style = "bold" if row["moved"] else ""
        cells = (row["before"], row["after"], row["change"], row["trend"])
        table.add_row(Text(row["label"], style), *map(Text, cells))
    return table
