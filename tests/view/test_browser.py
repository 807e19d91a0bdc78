"""The window in a real browser, beside a run that really trains, without one error of the page."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest

from assay.agents.http import up
from assay.runs.metrics import append_metrics
from assay.runs.run_directory import hold_run, stored_status, write_status
from assay.view.app import application
from assay.view.window import Window, named_labs
from tests.forked import assay
from tests.pages.synthetic import empty_run
from tests.tiny_labs import make_lab
from tests.view.browser import FIX, Tab, chromium, opened
from tests.view.labs import TOKEN, lab

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason=FIX)]
ROW = "main tbody tr"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser") / "lab"


@pytest.fixture(scope="module")
def run(home: Path):
    return lab(home)


@pytest.fixture(scope="module")
def site(home: Path, run) -> Iterator[str]:
    with up(application(Window(named_labs([home])), TOKEN)) as port:
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
def training(folder: Path, *settings: str) -> Iterator[None]:
    """`assay run` of a tiny model, in a process of its own."""
    sets = [word for each in settings for word in ("--set", each)]
    command = ["run", folder / "tiny.toml", *sets, "--lab", folder]
    process = assay(*command, log=folder.parent / "log", OMP_NUM_THREADS="1")
    yield
    process.join()
    assert process.exitcode == 0


def test_a_run_is_followed_while_it_trains(tmp_path: Path, tab: Tab):
    make_lab(tmp_path)
    with up(application(Window({"tiny": tmp_path}), TOKEN)) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
        assert "No runs here" in tab.text()
        with training(tmp_path, "stage.sft.steps=40", "stage.rl.steps=30"):
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
        # The stream has ended, and the window still answers.
        assert tab.script("document.querySelector('.lost').hidden")
        name = tab.script("location.pathname.split('/').slice(-3, -1).join('/')")
        tab.open(f"http://127.0.0.1:{port}/lab/tiny/samples?run={name}")
        tab.script("window.left = true; document.querySelector('td.start a').click()")
        tab.loaded()
        tab.script("window.left = true; document.querySelector('main a[href*=prompt]').click()")
        tab.loaded()
        assert "its fingerprint is the one that was recorded" in tab.text()
        assert tab.count_of(".special") > 1 and tab.count_of(".token") > 10


def test_a_filter_is_typed_and_a_group_is_opened(site: str, run, tab: Tab):
    tab.open(f"{site}/lab/lab/samples?run={run}")
    tab.press("/")
    assert tab.script("document.activeElement.name") == "text"
    tab.press(*"needle")
    tab.follow("Enter")
    assert "text=needle" in tab.script("location.search") and tab.count_of(ROW) == 2
    tab.press("j")
    tab.follow("Enter")
    assert tab.text("h1") == "rl/5/odd" and tab.count_of(".pair > div") == 4
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


def test_what_a_reader_opened_and_chose_stays_while_a_page_grows(tmp_path: Path, tab: Tab):
    run = lab(tmp_path / "lab")
    write_status(run.path, replace(stored_status(run.path), status="running"))
    with hold_run(run.path), up(application(Window({"lab": run.root}), TOKEN)) as port:
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
    pages = ["/", f"/lab/lab/runs/{run}/", f"/curves?run=lab/{run}"]
    pages += [f"/lab/lab/samples?run={run}", f"/lab/lab/show?id={run}:rl/5/odd%230"]
    pages += [f"/lab/lab/show?id={run}:rl/5/odd"]
    pages += ["/lab/lab/compare?run=demo&run=twin&on=held_out"]
    for page in pages:
        tab.open(site + page)
        assert tab.script("document.documentElement.scrollWidth") <= 390, page
        back = tab.script("getComputedStyle(document.body).backgroundColor")
        shade = sum(map(int, re.findall(r"\d+", back)))
        assert (shade < 200) == dark, page


def test_pages_are_read_without_javascript(site: str, run, tab: Tab):
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.ask("Page.navigate", url=f"{site}/lab/lab/samples?run={run}&text=needle")
        tab.until(f"document.querySelectorAll('{ROW}').length === 2")
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_the_window_counts_as_lost_only_where_it_does_not_answer(tmp_path: Path, tab: Tab):
    run, lost = empty_run(tmp_path / "lab"), "document.querySelector('.lost').hidden"
    write_status(run.path, replace(stored_status(run.path), status="running"))
    with hold_run(run.path), up(application(Window({"lab": run.root}), TOKEN)) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
        tab.open(f"http://127.0.0.1:{port}/lab/lab/runs/{run}/")
        tab.script("document.querySelector('main').dataset.live = '/nothing'")
        tab.script("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        sleep(2)  # the stream fails, and a question is answered
        assert tab.script(lost)
        tab.errors.clear()
    tab.until(f"!{lost}")
    tab.errors.clear()
