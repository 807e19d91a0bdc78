"""The window in a real browser, beside a run that really trains, without one error of the page."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from assay.runs.metrics import append_metrics
from assay.runs.status import hold_run, stored_status, write_status
from assay.serve.connections import answering
from assay.view.app import application
from assay.view.window import Window, named_labs
from tests.pages.synthetic import empty_run
from tests.tiny_labs import make_lab
from tests.view.browser import FIX, Tab, chromium, opened
from tests.view.labs import TOKEN, lab, twin_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason=FIX),
]
ROW = "main tbody tr"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser") / "lab"


@pytest.fixture(scope="module")
def run(home: Path):
    return lab(home)


@pytest.fixture(scope="module")
def site(home: Path, run) -> Iterator[str]:
    with answering(application(Window(named_labs([home])), TOKEN), 0) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def browser(home: Path, site: str) -> Iterator[Tab]:
    with opened(home.parent / "profile") as tab:
        tab.open(f"{site}/?token={TOKEN}")
        yield tab


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    """The page in daylight; no test may leave an error behind."""
    browser.screen(1100, 900)
    browser.errors.clear()
    yield browser
    assert not browser.errors


@contextmanager
def training(folder: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """`assay run` of a tiny model, in a process of its own."""
    sets = [word for each in settings for word in ("--set", each)]
    with verb(folder, "run", str(folder / "tiny.toml"), *sets) as process:
        yield process


@contextmanager
def verb(folder: Path, *words: str, ends: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A verb in a process of its own, with the code that it is to end with."""
    code = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words, "--lab", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(process.stdout.read()))  # type: ignore[arg-type]
        reader.start()
        yield process
        process.wait()
        reader.join()
        assert process.returncode == ends, said


def test_a_run_is_followed_while_it_trains(tmp_path: Path, tab: Tab):
    make_lab(tmp_path)
    with answering(application(Window({"tiny": tmp_path}), TOKEN), 0) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
        assert "No runs here" in tab.text()
        with training(tmp_path, "stage.sft.steps=40", "stage.rl.steps=6"):
            # The list finds the run by itself, then its page grows by itself.
            tab.until(f"document.querySelectorAll('{ROW}').length === 1")
            tab.script("window.left = true; document.querySelector('main tbody a').click()")
            tab.loaded()
            address = tab.script("location.href")
            seen = set()
            while "finished" not in tab.text(".chips"):
                tab.script("window.here = true")
                mark = tab.script("document.querySelector('main').dataset.seen ?? ''")
                seen.add(mark)
                tab.until(
                    f"document.querySelector('main').dataset.seen !== {mark!r}"
                    " || document.querySelector('.chips').innerText.includes('finished')"
                )
            assert (
                len(seen) > 2
                and tab.script("window.here")
                and address == tab.script("location.href")
            )
        tab.until("document.querySelector('main').innerText.includes('Before and after')")


def test_a_page_follows_a_run_that_is_killed_and_goes_on(tmp_path: Path, tab: Tab):
    file, steps = str(make_lab(tmp_path)), ("--set", "stage.sft.steps=400")
    states = "document.querySelector('main').innerText.includes"
    with answering(application(Window({"tiny": tmp_path}), TOKEN), 0) as port:
        with verb(tmp_path, "run", file, *steps, ends=-signal.SIGKILL) as process:
            tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
            tab.until(f"document.querySelectorAll('{ROW}').length === 1")
            tab.until("document.querySelector('tbody').innerText.includes('sft · step')")
            tab.script("window.here = true")
            process.kill()
            tab.until(f"{states}('interrupted')")
        tab.script("window.left = true; document.querySelector('main tbody a').click()")
        tab.loaded()
        tab.script("window.here = true")
        with verb(tmp_path, "resume", "tiny", ends=-signal.SIGKILL) as process:
            tab.until(f"{states}('status running')")
            process.kill()
            tab.until(f"{states}('status interrupted')")
        assert tab.script("window.here")


def test_a_page_says_that_nobody_tells_it_of_changes(tmp_path: Path, browser: Tab):
    with answering(application(Window({"tiny": tmp_path}), TOKEN), 0) as port:
        browser.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
        browser.until("document.querySelector('.lost').hidden")
    browser.until("!document.querySelector('.lost').hidden")
    with answering(application(Window({"tiny": tmp_path}), TOKEN), port):
        browser.until("document.querySelector('.lost').hidden")


def test_a_filter_is_typed_and_a_group_is_opened(site: str, run, tab: Tab):
    tab.open(f"{site}/lab/lab/samples?run={run}")
    tab.press("/")
    assert tab.script("document.activeElement.name") == "text"
    tab.press(*"needle")
    tab.follow("Enter")
    assert "text=needle" in tab.script("location.search") and tab.count_of(ROW) == 2
    tab.press("j")
    tab.follow("Enter")
    assert "step 5 of rl" in tab.text("h1") and tab.count_of(".pair > div") == 4
    tab.press("j", "j")
    tab.follow("Enter")
    assert tab.text("h1") == "rl/5/odd#1" and "deadline" in tab.text()


def test_hostile_text_runs_nothing(site: str, run, tab: Tab):
    for address in (f"samples?run={run}&row=odd", f"show?id={run}:rl/5/odd%230"):
        tab.open(f"{site}/lab/lab/{address}")
        assert "<script>alert(1)" in tab.text()
        assert tab.count_of("script") == 1 and tab.count_of("main img") == 0


def test_the_policy_stops_a_script_that_gets_in(site: str, run, browser: Tab):
    """The control of the test before: what would be there if escaping failed does not run."""
    browser.open(f"{site}/")
    browser.errors.clear()
    browser.script(
        "document.querySelector('main').insertAdjacentHTML('beforeend', "
        "'<img src=x onerror=\"window.ran = true\">');"
        "const s = document.createElement('script'); s.textContent = 'window.ran = true';"
        "document.body.append(s)"
    )
    browser.until("document.querySelector('main img').complete")
    assert browser.script("window.ran") is None
    assert any("Content Security Policy" in error for error in browser.errors)


def test_two_runs_are_ticked_and_compared_by_keyboard_alone(site: str, run, tab: Tab):
    tab.open(f"{site}/")
    tab.press("j", "x", "j", "x")
    assert tab.count_of("input:checked") == 2
    for _ in range(40):
        tab.press("Tab")
        if tab.script("document.activeElement.innerText") == "Compare":
            break
    tab.follow("Enter")
    assert "held_out" in tab.text("h1")
    assert tab.count_of("section#fairness") == 1 and tab.count_of(".badge") > 0


def point_at(tab: Tab, selector: str) -> None:
    """Put the pointer into the middle of an element."""
    found = f"document.querySelector({selector!r})"
    tab.script(f"{found}.scrollIntoView({{block: 'center'}})")
    x, y = tab.script(
        f"(r => [r.x + r.width / 2, r.y + r.height / 2])({found}.getBoundingClientRect())"
    )
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def test_values_are_told_under_the_pointer(site: str, run, tab: Tab):
    tab.open(f"{site}/curves?run=lab/{run}&run=lab/{twin_of(run)}&stage=rl&metric=reward_mean")
    point_at(tab, "svg[data-told]")
    told = tab.until("document.querySelector('.told').innerText")
    assert re.match(r"Step [1-4]\s", told) and told.count("demo") == told.count("twin") == 1
    assert len(re.findall(r"0\.\d+ \(0\.\d+ to 0\.\d+\)", told)) == 2
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert tab.script("document.querySelector('.told').hidden")


def test_all_panels_of_a_run_tell_their_values_at_one_step_by_keyboard(site: str, run, tab: Tab):
    tab.open(f"{site}/lab/lab/runs/{run}/")
    panels = "document.querySelectorAll('#training .panels')[1].querySelectorAll('figure')"
    said = f"[...{panels}].map(each => each.querySelector('figcaption i').innerText)"
    last = tab.script(said)
    tab.script(f"{panels}[0].querySelector('svg').focus()")
    tab.press("ArrowLeft", "ArrowLeft")
    assert tab.text(".told").startswith("Step 2") and "Mean reward" in tab.text(".told")
    at_two = tab.script(said)
    assert len(at_two) > 5 and at_two != last
    assert tab.count_of("#training .panels .pin") == len(at_two)
    tab.press("ArrowDown")
    assert tab.text(".told").startswith("Step 2") and "Mean" not in tab.text(".told")
    tab.press("Home")
    assert tab.text(".told").startswith("Step 1\n")
    tab.press("Escape")
    assert tab.script(said) == last and tab.count_of(".pin") == 0
    # The charts of a group are one stop of the Tab key.
    stops = f"[...{panels}].filter(each => each.querySelector('svg').tabIndex === 0).length"
    assert tab.script(stops) == 1


def test_a_flipped_item_is_opened_from_a_comparison(site: str, run, tab: Tab):
    tab.open(f"{site}/lab/lab/compare?run=demo&run=twin&on=held_out")
    tab.script("window.left = true; document.querySelector('#flips .example h3 a').click()")
    tab.loaded()
    assert tab.count_of(".pair > div") == 2
    assert {"demo · rl · step 30 #0", "twin · rl · step 30 #0"} <= set(tab.text().split("\n"))


def test_what_a_reader_opened_and_chose_stays_while_a_page_grows(tmp_path: Path, tab: Tab):
    run = lab(tmp_path / "lab")
    write_status(run.path, replace(stored_status(run.path), status="running"))
    with hold_run(run.path), answering(application(Window({"lab": run.root}), TOKEN), 0) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
        tab.press("j", "x")
        tab.script("document.querySelectorAll('main tbody a')[1].focus()")
        focused = tab.script("document.activeElement.getAttribute('href')")
        ticked = tab.script("document.querySelector('input:checked').value")
        empty_run(run.root, "another")
        tab.until(f"document.querySelectorAll('{ROW}').length === 3")
        assert tab.script("document.activeElement.getAttribute('href')") == focused
        assert tab.script("document.querySelector('input:checked').value") == ticked
        tab.open(f"http://127.0.0.1:{port}/lab/lab/runs/{run}/")
        tab.script("window.unfolded = document.querySelector('details'); unfolded.open = true")
        append_metrics(run.metrics, "rl", 5, 1.0, reward_mean=0.5, grad_norm=1.5)
        tab.until("document.querySelector('main').dataset.seen")
        assert tab.script("unfolded.isConnected && unfolded.open")


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_fits_a_phone(site: str, run, tab: Tab, dark: bool):
    tab.screen(390, 844, dark)
    pages = [
        "/",
        f"/lab/lab/runs/{run}/",
        f"/curves?run=lab/{run}",
    ]
    pages += [f"/lab/lab/samples?run={run}", f"/lab/lab/show?id={run}:rl/5/odd%230"]
    pages += [f"/lab/lab/group?run={run}&stage=rl&step=5&row=odd"]
    pages += ["/lab/lab/compare?run=demo&run=twin&on=held_out", "/lab/lab/matrix"]
    for page in pages:
        tab.open(site + page)
        assert tab.script("document.documentElement.scrollWidth") <= 390, page
        back = tab.script("getComputedStyle(document.body).backgroundColor")
        shade = sum(map(int, re.findall(r"\d+", back)))
        assert (shade < 200) == dark, page


def test_the_language_is_changed_by_its_link(site: str, run, tab: Tab):
    tab.open(f"{site}/lab/lab/samples?run={run}&score_from=1")
    tab.script("window.left = true; document.querySelector('nav .lang').click()")
    tab.loaded()
    assert tab.script("document.documentElement.lang") == "zh" and "样本" in tab.text("h1")
    assert "score_from=1" in tab.script("location.search")
    tab.open(f"{site}/?lang=en")


def test_pages_are_read_without_javascript(site: str, run, tab: Tab):
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.ask("Page.navigate", url=f"{site}/lab/lab/samples?run={run}&text=needle")
        tab.until(f"document.querySelectorAll('{ROW}').length === 2")
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)
