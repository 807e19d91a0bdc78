"""What all pages of the window share: the labs with their runs, what was read of them before, the
frame (head of the document, links to all parts, what a live run is at), and addresses.

A reading is kept until a file that it depends on is another one. Nothing is written.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from threading import Event
from urllib.parse import quote, urlencode

from markupsafe import Markup

from assay.data.files import sha256_text, stamp
from assay.errors import AssayError, InputError, nearest
from assay.pages.facts import RunFacts, gather
from assay.pages.html import body_html, headed, style
from assay.pages.live_display import clock_text
from assay.pages.page import Page
from assay.pages.words import LANGUAGES, Words, flat, number
from assay.runs.run_directory import (
    STATUS,
    RunDirectory,
    all_runs,
    check_lab,
    is_held,
    read_now,
    read_status,
)
from assay.runs.run_names import RunNotFound, find_run, parse_run_name
from assay.view.completions import Completions

KEPT = 64
"""Readings of each kind that stay in memory; of completions so many runs as `RUNS_KEPT`."""
RUNS_KEPT = 6


@lru_cache(maxsize=KEPT)
def facts_at(run: RunDirectory, _: Hashable) -> RunFacts:
    """What a run recorded until it had a stamp."""
    return gather(run)


completions_of = lru_cache(maxsize=RUNS_KEPT)(Completions)


@dataclass(frozen=True)
class Window:
    """The labs that are shown, by the names that addresses have."""

    labs: Mapping[str, Path]
    closing: Event = field(default_factory=Event)
    """Set when the server stops, so that no stream of events keeps it."""

    def root(self, lab: str) -> Path:
        """The folder of a lab. Raises RunNotFound."""
        if lab not in self.labs:
            raise RunNotFound(f"no lab named {lab!r} is shown", fix=nearest(lab, self.labs))
        return self.labs[lab]

    def run(self, lab: str, name: str) -> RunDirectory:
        """A run by NAME, NAME/ID or NAME#SEED. Raises RunNotFound, InputError."""
        return find_run(self.root(lab), parse_run_name(name))

    def everywhere(self) -> list[tuple[str, RunDirectory]]:
        """The runs of all labs, the latest first."""
        runs = [(lab, run) for lab, root in self.labs.items() for run in all_runs(root)]
        return sorted(runs, key=lambda pair: pair[1].id, reverse=True)

    def facts(self, run: RunDirectory) -> RunFacts:
        """What a run recorded so far, and whether it still runs, which no file says."""
        return facts_at(run, (stamp_of(run), is_held(run.path)))


def stamp_of(run: RunDirectory) -> Hashable:
    """What changes whenever a run records something."""
    files = [run.metrics, run.path / STATUS, run.path / "selection.json", run.manifest]
    folders = [*run.evaluations.glob("*"), *(run.path / "checkpoints").glob("*")]
    return stamps_of(*files, *sorted(folders))


def stamps_of(*files: Path) -> Hashable:
    """What changes with any of some files."""
    return tuple((str(file), stamp(file)) for file in files)


def named_labs(roots: Sequence[Path]) -> dict[str, Path]:
    """The labs by the names of their folders, a number behind one that comes again.

    Raises InputError for a folder that is not there.
    """
    named: dict[str, Path] = {}
    for root in dict.fromkeys(root.resolve() for root in roots):
        check_lab(root)
        name, count = root.name or "lab", 2
        while name in named:
            name, count = f"{root.name or 'lab'}-{count}", count + 1
        named[name] = root
    return named


EVERY = 1.0
"""Seconds between two looks at the files."""
SILENCE = 15
"""Looks without a change after which a line is sent all the same, so that nobody hangs up."""
DAMAGED = "damaged"
TURNED = "event: turned\ndata: \n\n"


def live_address(window: Window, names: Sequence[str]) -> str:
    """Where a page asks for changes of some runs, or of all, since it was made; "" where all of
    them are finished. To be called before the page reads anything."""
    states, _ = now = state(window, names)
    pairs = [("run", name) for name in names]
    return "/live?" + urlencode([*pairs, ("seen", digest(now))]) if unfinished(states) else ""


def digest(now: Hashable) -> str:
    """A state in a word."""
    return sha256_text(repr(now))[:12]


async def changes(
    window: Window, names: Sequence[str], seen: str, gone: Callable[[], Awaitable[bool]], w: Words
) -> AsyncIterator[str]:
    """An event whenever one of some runs (LAB/NAME/ID; else all) changes, the first one where they
    have since the state `seen`, until the reader left or the server stops.

    "turned" says that a run began, broke off, ended or is gone, "grown" that it recorded more,
    "now" what a run that is alone is at. When all are finished, no more is to come; one that was
    killed may be resumed.
    """
    before, states, quiet, shown = seen, None, 0, ""
    yield "retry: 3000\n\n"
    while not (window.closing.is_set() or await gone()):
        try:
            latest = await asyncio.to_thread(state, window, names)
        except InputError:  # the page itself says what is gone, once it is asked for again
            yield TURNED
            return
        turned, states = states not in (None, latest[0]), latest[0]
        if (now := digest(latest)) != before:
            yield TURNED if turned else "event: grown\ndata: \n\n"
            before, quiet = now, 0
        if len(names) == 1 and (text := now_text(named(window, names[0])[1], w)) != shown:
            yield f"event: now\ndata: {text}\n\n"
            shown, quiet = text, 0
        if not unfinished(states):
            return
        if (quiet := quiet + 1) % SILENCE == 0:
            yield ": still here\n\n"
        await asyncio.sleep(EVERY)


def state(window: Window, names: Sequence[str]) -> tuple[Sequence[str], Hashable]:
    """The states of the runs, and what changes with what they record; of all runs only what their
    list shows."""
    if not names:
        every = [run for _, run in window.everywhere()]
        stamps = tuple(stamps_of(run.path / STATUS, run.metrics) for run in every)
        return [str(is_held(run.path)) for run in every] or ["none"], stamps
    runs = [named(window, name)[1] for name in names]
    return list(map(state_of, runs)), tuple(map(stamp_of, runs))


def unfinished(states: Sequence[str]) -> bool:
    """Whether one of the runs may go on; a damaged run does not."""
    return any(state not in ("finished", DAMAGED) for state in states)


def named(window: Window, name: str) -> tuple[str, RunDirectory]:
    """A run by LAB/NAME/ID. Raises RunNotFound."""
    lab, _, rest = name.partition("/")
    return lab, window.run(lab, rest)


def state_of(run: RunDirectory) -> str:
    """The state of a run, DAMAGED for one that does not say it."""
    try:
        return read_status(run.path).status
    except AssayError:
        return DAMAGED


HEAD = Markup("""<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="/style.css">
<script src="/view.js" defer></script>
</head>
<body>
<a class="skip" href="#main">{skip}</a>
<nav class="window" aria-label="{about}">{links}</nav>
<p class="now" role="status"{hidden}>{now}</p>
<main id="main" tabindex="-1"{live}>
<header><h1>{heading}</h1></header>
""")

FOOT = Markup("""</main>
<p class="keys" hidden>{keys}</p>
<p class="lost" role="status" hidden>{lost}</p>
</body>
</html>
""")
"""What the script shows: the keys, and that nobody tells it of changes."""
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M2 13L8 3l6 10" '
    'fill="none" stroke="#0b6e69" stroke-width="2.5"/></svg>'
)
"""What a browser shows beside the title."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page of the window with what is around it."""

    page: Page
    live: str = ""
    """The address that tells when the page is out of date; "" of one that stays."""
    lab: str = ""
    """The lab that the links lead into."""
    status: int = 200
    run: RunDirectory | None = None
    """The run whose parts they lead to."""


@cache
def style_sheet() -> str:
    """The style sheet of all pages, and what the window adds."""
    return str(style()) + (files("assay.view") / "view.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """The one script."""
    return (files("assay.view") / "view.js").read_text(encoding="utf-8")


def document(shown: Shown, here: str) -> str:
    """The whole document; `here` is its address without a language."""
    w = shown.page.words
    live = Markup(' data-live="{}"').format(shown.live) if shown.live else Markup("")
    links = Markup("").join(
        Markup('<a href="{}"{}>{}</a>').format(address, mark, text)
        for address, mark, text in _links(shown, here, w)
    )
    now = now_text(shown.run, w) if shown.run else ""
    around = {"live": live, "links": links, "skip": w("view.skip"), "about": w("view.parts")}
    around |= {"now": now, "hidden": Markup("" if now else " hidden")}
    foot = FOOT.format(keys=w("view.keys"), lost=w("view.lost"))
    return headed(shown.page, HEAD, **around) + body_html(shown.page) + foot


def now_text(run: RunDirectory, w: Words) -> str:
    """What a live run is at, in a line; "" of another."""
    now = read_now(run.path)
    if now is None:
        return ""
    stage = {"stage": now.stage, "step": min(now.step + 1, now.steps), "steps": now.steps}
    part = now.part if not now.checkpoint else "answered"
    count = {"name": now.part, "checkpoint": now.checkpoint, "total": number(now.total)}
    parts = [w("view.now_step", **stage)] if now.stage else []
    parts += [w(f"view.now_{part}", done=number(now.done), **count)] if now.part else []
    parts += [w("view.now_left", time=clock_text(now.left))] if now.left is not None else []
    return flat(" · ".join(parts))


def _links(shown: Shown, here: str, w: Words) -> list[tuple[str, Markup, str]]:
    lab, run, path = shown.lab, shown.run, here.partition("?")[0]
    parts = [("/", w("view.runs"))]
    if lab and run:
        own, kinds = run_address(lab, run), ("samples", "answers")
        curves = "/curves?" + urlencode({"run": full_name(lab, run)})
        parts.append((own, run.name))
        parts += [(lab_address(lab, kind, run=run), w(f"view.{kind}")) for kind in kinds]
        parts += [(curves, w("view.curves")), (own + "progress", w("view.progress"))]
        parts.append((own + "costs", w("synthesis.costs")))
    if lab:
        parts.append((lab_address(lab, "compare"), w("view.compare")))
    here_, other = Markup(' aria-current="page"'), Markup("")
    links = [(a, here_ if a.partition("?")[0] == path else other, text) for a, text in parts]
    lang = next(each for each in LANGUAGES if each != w.lang)
    sign = Markup(' class="lang" lang="{}" hreflang="{}"').format(lang, lang)
    return [
        *links,
        (f"{here}{'&' if '?' in here else '?'}lang={lang}", sign, w("view.other_language")),
    ]


def run_address(lab: str, run: RunDirectory) -> str:
    """The page of a run; what it links to lies below."""
    return f"/lab/{quote(lab)}/runs/{quote(run.name)}/{quote(run.id)}/"


def lab_address(lab: str, part: str, **query: object) -> str:
    """A part of a lab with the query of its address; a list comes as often as it has values."""
    values = {name: value for name, value in query.items() if value not in ("", None)}
    text = urlencode(values, doseq=True)
    return f"/lab/{quote(lab)}/{part}" + (f"?{text}" if text else "")


def full_name(lab: str, run: RunDirectory) -> str:
    """A run among those of all labs: LAB/NAME/ID."""
    return f"{lab}/{run}"
