"""The frame of the window's pages: the head of the document, the links to all parts, what a live
run is at, addresses."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import quote, urlencode

from markupsafe import Markup

from assay.pages.html import body_html, headed, style
from assay.pages.live_display import clock_text
from assay.pages.page import Page
from assay.pages.words import LANGUAGES, Words, flat, number
from assay.runs.run_directory import RunDirectory
from assay.runs.status import read_now

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
