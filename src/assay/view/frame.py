"""The frame of the window's pages: the head of the document, the links to all parts, addresses."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import quote, urlencode

from markupsafe import Markup

from assay.pages.html import body_html, headed, style
from assay.pages.page import Page
from assay.pages.words import LANGUAGES, Words
from assay.runs.run_directory import RunDirectory

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
        for address, mark, text in _links(shown.lab, here, w)
    )
    around = {"live": live, "links": links, "skip": w("view.skip"), "about": w("view.parts")}
    foot = FOOT.format(keys=w("view.keys"), lost=w("view.lost"))
    return headed(shown.page, HEAD, **around) + body_html(shown.page) + foot


def _links(lab: str, here: str, w: Words) -> list[tuple[str, Markup, str]]:
    path = here.partition("?")[0]
    parts = [("/", w("view.runs"))]
    if lab:
        parts.append((lab_address(lab, "compare"), w("view.compare")))
    own, other = Markup(' aria-current="page"'), Markup("")
    links = [(address, own if address == path else other, text) for address, text in parts]
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
