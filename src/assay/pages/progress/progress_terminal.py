"""The progress of a stage in a terminal: all of it for `assay report`, the short form for `watch`.

Makes rich renderables of the values of `progress_content` and prints nothing.
"""

from collections import Counter

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from assay.lab.monitor.progress import Progress
from assay.pages.progress.progress_content import Section, progress_section
from assay.pages.words import Words, words

STATE_STYLES = {"error": "bold red", "warning": "yellow", "note": "bold"}
STATES = {"better": "green", "worse": "red", "undecided": "yellow", "": "dim"}


def progress_view(found: Progress, lang: str = "en", *, short: bool = False) -> RenderableType:
    """Changes, findings, forecasts, milestones, guards and the gate; the table comes last, because
    it is what a small terminal may cut. The short form has no tables of facts and rules.
    """
    w = words(lang)
    section = progress_section(found, w)
    parts: list[RenderableType] = [
        Text(section["title"], "bold"),
        Text(section["about"], "dim"),
        *(Text(f"- {line}") for line in section["changes"]),
    ]
    for finding in section["findings"]:
        new = w("terminal.badge", badge=w("progress.new")) if finding["new"] else ""
        style = STATE_STYLES[finding["kind"]]
        parts.append(
            Text.assemble((finding["severity"], style), f"{new}{w.colon}{finding['what']}")
        )
        parts.append(Text(f"    {finding['evidence']}", "dim"))
        parts.append(Text(f"    {w('progress.advice')}{w.colon}{finding['fix']}"))
    parts += [Text(line) for line in section["forecasts"]]
    for each in section["milestones"]:
        about = w("terminal.badge", badge=each["about"]) if each["about"] else ""
        line = Text.assemble((each["state"], STATES[each["kind"]]), " ", (each["name"], "bold"))
        parts.append(
            line.append(
                about
                + w.colon
                + w("punctuation.stop").join(filter(None, (each["expected"], each["value"])))
            )
        )
    for each in section["guards"]:
        line = Text.assemble((each["state"], STATES[each["kind"]]), " ", (each["name"], "bold"))
        parts.append(line.append(w.colon + each["condition"]))
    if section["promotion"]:
        parts.append(Text(section["promotion"]))
    if section["stopped"]:
        parts.append(Text(section["stopped"], "bold red"))
    more = short_facts(section, w) if short else all_facts(section, w)
    return Group(*parts, *more, metric_table(section, lang))


def short_facts(section: Section, w: Words) -> list[RenderableType]:
    """What changed among the completions, how many rules stand how, and what to watch."""
    shown: list[RenderableType] = []
    if section["facts"]:
        shown += [Text(f"- {line}") for line in section["facts"]["short"]]
    counts = Counter(row["state"] for row in section["health"])
    stop = w.listing
    told = stop.join(f"{state} {count}" for state, count in counts.items())
    shown.append(Text(w("health_state.states", counts=told), "dim"))
    if section["watched"]:
        shown.append(Text(section["watch_title"], "bold"))
        shown += [Text(w("watching.line", **row)) for row in section["watched"]]
    return shown


def all_facts(section: Section, w: Words) -> list[RenderableType]:
    """The tables of completions, of what to watch and of rules, and the two programs."""
    shown: list[RenderableType] = []
    facts, programs = section["facts"], section["programs"]
    if facts:
        shown += [Text(w("facts.title"), "bold"), Text(facts["about"], "dim")]
        shown += [Text(f"- {line}") for line in facts["said"]]
        shown += [fact_table(table, w) for table in facts["tables"]]
        shown += [Text(table["note"], "dim") for table in facts["tables"] if table["note"]]
    if section["watched"]:
        shown.append(watch_table(section, w))
    shown += [rule_table(section, w), *idle_rules(section, w)]
    if programs:
        shown += [Text(programs["title"], "bold"), Text(programs["chosen"], "dim")]
        for side in programs["sides"]:
            error = f". {side['error']}" if side["error"] else ""
            shown.append(Text(f"{side['title']}{w.colon}{side['result']}{error}"))
            shown.append(Padding(Text(side["text"]), (0, 0, 0, 4)))
    return shown


def fact_table(found: Section, w: Words) -> Table:
    """One table of completions before and after."""
    table = Table(title=found["title"], title_justify="left", box=None, header_style="bold")
    for name in ("name", "before", "after", "change"):
        table.add_column(w(f"facts.{name}"))
    for row in found["rows"]:
        label = ("  " if row["depth"] else "") + row["label"]
        cells = (row["before"], row["after"], row["change"])
        table.add_row(Text(label, "bold" if row["moved"] else ""), *map(Text, cells))
    return table


def watch_table(section: Section, w: Words) -> Table:
    """What to watch, and how far it is from its bound."""
    table = Table(title=section["watch_title"], title_justify="left", box=None, header_style="bold")
    names = ("what", "now", "bound", "left", "why")
    for name in names:
        table.add_column(w(f"watching.{name}"))
    for row in section["watched"]:
        table.add_row(*(Text(row[name], STATES[row["kind"]]) for name in names))
    return table


def rule_table(section: Section, w: Words) -> Table:
    """Every rule that read something, with its state and figure."""
    title = w("health_state.title")
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for name in ("state", "rule", "figure"):
        table.add_column(w(f"health_state.{name}"))
    for row in section["health"]:
        if row["read"]:
            state = Text(row["state"], STATES[row["kind"]])
            table.add_row(state, Text(row["what"]), Text(row["figure"]))
    return table


def idle_rules(section: Section, w: Words) -> list[RenderableType]:
    """The rules that read nothing, in a line for each reason."""
    idle: dict[str, list[str]] = {}
    for row in section["health"]:
        if not row["read"]:
            idle.setdefault(row["state"], []).append(row["what"])
    joint, colon = w.semicolon, w.colon
    return [Text(f"{state}{colon}{joint.join(names)}", "dim") for state, names in idle.items()]


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
