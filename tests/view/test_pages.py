"""Every address of the window answers in both languages, says what is true, changes nothing."""

import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from assay.runs.metrics import append_metrics
from assay.runs.records import FACTS, write_samples
from assay.runs.run_directory import (
    STATUS,
    RunDirectory,
    hold_run,
    read_manifest,
    stored_status,
    write_manifest,
    write_status,
)
from tests.pages.synthetic import empty_run
from tests.view.labs import EVIL, addresses, client, lab, sample, twin_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return lab(tmp_path_factory.mktemp("window"))


@pytest.fixture(scope="module")
def reader(run: RunDirectory):
    return client(run.root)


def hashed(folder: Path) -> dict[str, str]:
    """Every file of a folder with its hash."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.fixture(scope="module")
def visited(run, reader):
    """The answers of every address in English, after one in Chinese, and whether files changed."""
    before, found = hashed(run.root), {}
    for address in addresses(run):
        for lang in ("zh", "en"):
            joint = "&" if "?" in address else "?"
            found[lang, address] = reader.get(f"{address}{joint}lang={lang}")
    return found, hashed(run.root) == before


def test_every_address_answers_and_no_file_of_the_lab_changes(visited):
    found, unchanged = visited
    for place, answer in found.items():
        assert answer.status_code == 200, (place, answer.text[-400:])
    assert unchanged


def test_pages_hold_no_script_and_no_style_of_their_own(visited):
    for (lang, address), answer in visited[0].items():
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        if answer.headers["content-type"].startswith("text/html"):
            assert f'<html lang="{lang}">' in answer.text
            assert answer.text.count("<script") == 1 and " style=" not in answer.text, address
            assert not re.search(r"<[a-z][^>]* on[a-z]+=", answer.text), address


def test_hostile_text_is_shown_as_text(run, reader):
    name = f"/lab/{run.root.name}"
    for address in (
        f"{name}/samples?run={run}&step_from=5",
        f"{name}/show?id={run}:rl/5/odd%230",
        f"{name}/show?id={run}:rl/5/odd",
    ):
        text = reader.get(address).text
        assert "&lt;script&gt;alert(1)" in text and "\x1b" not in text and "\u202e" not in text
    asked = reader.get(f"{name}/samples", params={"run": str(run), "text": EVIL}).text
    assert "<script>alert" not in asked


@pytest.mark.parametrize("token", ["", "?token=wrong"])
def test_without_the_token_nothing_is_told(run, token):
    stranger = client(run.root)
    stranger.cookies.clear()
    for address in ("/", "/style.css", f"/lab/{run.root.name}/runs/{run}/"):
        answer = stranger.get(address + token)
        assert answer.status_code == 403 and "demo" not in answer.text


def test_the_token_becomes_a_cookie_that_no_other_site_can_send(run):
    stranger = client(run.root)
    stranger.cookies.clear()
    answer = stranger.get("/?text=demo&token=open-sesame", follow_redirects=False)
    assert answer.headers["location"] == "/?text=demo"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example/a", r"/\evil.example/"])
def test_no_address_leads_out_of_the_window(run, path):
    here = "http://127.0.0.1:8010"
    answer = client(run.root).get(f"{here}{path}?token=open-sesame", follow_redirects=False)
    location = answer.headers["location"].replace("\\", "/")  # as browsers read it
    assert answer.status_code == 303 and urljoin(f"{here}/", location).startswith(f"{here}/")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8010", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("localhost:8010", 303),
        ("[::1]:8010", 303),
        ("127.0.0.1:8010", 303),
    ],
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(run, host, status):
    address = "/?token=open-sesame"
    answer = client(run.root).get(address, headers={"host": host}, follow_redirects=False)
    assert answer.status_code == status


@pytest.mark.parametrize(
    "address",
    [
        "/lab/nowhere/compare",
        "/lab/{lab}/runs/nothing/",
        "/lab/{lab}/runs/demo/20200101T000000Z-000000/",
        "/lab/{lab}/samples?run=nothing",
        "/curves?run={lab}/nothing",
        "/lab/{lab}/runs/{run}/manifest.json",
    ],
)
def test_what_is_not_there_is_said_in_one_line(run, reader, address):
    answer = reader.get(address.format(lab=run.root.name, run=run))
    assert answer.status_code == 404
    lines = re.findall(r'<div class="warn error">(.*?)</div>', answer.text, re.S)
    assert not lines or (len(lines) == 1 and "\n" not in lines[0] and "Traceback" not in lines[0])


def test_a_value_that_is_none_is_named_with_its_field(run, reader):
    answer = reader.get(f"/lab/{run.root.name}/samples?run={run}&step_from=early")
    assert answer.status_code == 400 and "step_from: " in unescape(answer.text)


@pytest.mark.parametrize(
    "path", ["runs/..%2f..%2fetc/passwd/", "samples?run=../x", "show?id=x/../y:z"]
)
def test_a_name_leads_to_no_other_folder(run, reader, path):
    assert reader.get(f"/lab/{run.root.name}/{path}").status_code in (400, 404)


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside.jsonl", "x.toml/../../y.toml"])
def test_no_file_is_read_for_an_address(run, reader, name):
    (run.root.parent / "outside.jsonl").write_text("{}")
    answer = reader.get(f"/lab/{run.root.name}/compare?run=demo&run={name}")
    assert answer.status_code == 400 and "is a file" in unescape(answer.text)


def test_a_flipped_item_of_a_comparison_leads_to_both_answers(run, reader):
    root = f"/lab/{run.root.name}"
    page = reader.get(f"{root}/compare?run=demo&run=twin&on=held_out").text
    links = re.findall(r'href="([^"]*/show[^"]*)"', page.partition('id="flips"')[2])
    assert len(set(links)) == 3
    item = reader.get(unescape(links[0]))
    assert item.status_code == 200 and item.text.count('<div class="say"><span><a') == 2
    assert "demo · " in item.text and "twin · " in item.text


def test_the_list_has_the_score_and_the_verdict_of_the_runs_own_page(run, reader):
    rows = re.findall(r"<tr>.*?</tr>", reader.get("/").text.partition("<tbody>")[2], re.S)
    page = (reader.get(f"/lab/{run.root.name}/runs/{run}/")).text
    (row,) = (row for row in rows if run.id in row)
    score = re.search(r"(\d+\.\d%)", row)
    verdict = re.search(r'badge (better|worse|undecided|equivalent)"', row)
    assert score and verdict and score[1] in page and f"badge {verdict[1]}" in page


def test_a_damaged_run_hides_no_other(tmp_path):
    run = empty_run(tmp_path)
    other = tmp_path / "runs" / "broken" / "20260101T000000Z-aaaaaa"
    other.mkdir(parents=True)
    (other / STATUS).write_text("{}")
    text = client(tmp_path).get("/").text
    assert "damaged" in text and run.id in text and "broken" in text


def test_a_conversation_is_shown_with_its_calls_and_folded_thoughts(run, reader):
    text = reader.get(f"/lab/{run.root.name}/show?id={run}:rl/6/talk%230").text
    assert re.search(r"<details><summary>Thought</summary>\s*<pre>plan it</pre>", text)
    assert "<code>look</code>" in text and "&#34;sky&#34;" in text and "tool</h4>" in text
    assert "plan it" not in re.sub(r"<details>.*?</details>", "", text, flags=re.S)


def test_no_replay_is_offered_where_a_stage_learned_from_no_reward(tmp_path):
    run = lab(tmp_path / "taught")
    manifest = read_manifest(run)
    write_manifest(run, manifest | {"stages": {"rl": {"method": "distill"}}})
    reader, address = client(run.root), f"/lab/{run.root.name}"
    group = reader.get(f"{address}/show?id={run}:rl/5/odd").text
    sample = reader.get(f"{address}/show?id={run}:rl/5/odd%233").text
    assert "#3</a>" in group and "assay report" in sample
    assert "assay replay" not in group + sample


def test_a_link_to_a_record_leads_to_its_answers(run, reader):
    key = next(run.evaluations.glob("held_out-*")).name
    answer = reader.get(f"/lab/{run.root.name}/runs/{run}/evaluations/{key}/base.parquet")
    assert str(answer.url).endswith(f"evaluation={key}&checkpoint=base")
    assert "Found: 30" in answer.text


def test_the_language_is_kept_and_asked_for_by_address(run):
    reader = client(run.root)
    assert 'lang="zh"' in reader.get("/?lang=zh").text
    assert 'lang="zh"' in reader.get("/").text
    assert 'lang="en"' in reader.get("/?lang=en").text


def test_a_run_whose_process_is_gone_is_no_longer_called_running(tmp_path):
    run = empty_run(tmp_path)
    write_status(run.path, replace(stored_status(run.path), status="running"))
    reader, address = client(tmp_path), f"/lab/{tmp_path.name}/runs/{run}/"
    with hold_run(run.path):
        page = reader.get(address).text
        assert "<b>running</b>" in page and "data-live" in page
    page = reader.get(address).text
    # It may be resumed.
    assert "<b>interrupted</b>" in page and "data-live" in page
    assert "interrupted" in reader.get("/").text


def test_a_damaged_file_of_samples_hides_no_other(tmp_path):
    run = lab(tmp_path / "lab")
    run.samples("rl", 2).write_bytes(b"cut")
    reader, address = client(run.root), f"/lab/lab/samples?run={run}"
    page = reader.get(address)
    assert page.status_code == 200 and "step-000002.parquet" in page.text
    assert "Found: 53" in page.text  # of three steps of sixteen, and of five that are written here
    # The run's own page says it as well, and still leads to what can be read.
    page = reader.get(f"/lab/lab/runs/{run}/")
    assert page.status_code == 200 and page.text.count("step-000002.parquet") == 1
    assert "/lab/lab/answers?run=" in page.text
    # Beside another run its curves are left out, and named.
    page = reader.get(f"/curves?run=lab/{run}&run=lab/{twin_of(run)}")
    assert page.status_code == 200 and "step-000002.parquet" in page.text


def test_a_run_of_another_trainer_without_log_probs_tokens_or_names_is_shown(tmp_path):
    run = lab(tmp_path / "lab")
    bare = {"tokens": [], "behaviour_logps": [], "advantage": None, "ended": "", "parts": "{}"}
    facts = {FACTS: json.dumps({"prompt": "How warm is it?"})}
    line = sample(7, "prompt-0123", 0, text="said", **bare, **facts)
    write_samples(run.samples("rl", 7), [line])
    for step in (41, 42):
        append_metrics(run.metrics, "rl", step, None, **{"trl/entropy_coef_x": step / 7})  # type: ignore[arg-type]
    reader, base = client(run.root), "/lab/lab"
    page = reader.get(f"{base}/runs/{run}/")
    assert page.status_code == 200 and "trl/entropy_coef_x" in page.text
    assert "trl/entropy_coef_x" in reader.get(f"/curves?run=lab/{run}&stage=rl").text
    shown = reader.get(f"{base}/show?id={run}:rl/7/prompt-0123%230")
    assert shown.status_code == 200 and "How warm is it?" in shown.text
    group = reader.get(f"{base}/show?id={run}:rl/7/prompt-0123")
    assert group.status_code == 200 and "said" in group.text
    rows = reader.get(f"{base}/samples?run={run}&step_from=7").text
    assert "Found: 1" in rows and "said" in rows


def test_thoughts_are_folded_side_by_side(tmp_path):
    run = lab(tmp_path / "lab")
    write_samples(run.samples("rl", 7), [sample(7, "a", 0, text="<think>deep</think>\n\nshort")])
    write_samples(run.samples("rl", 8), [sample(8, "a", 0)])
    address = f"/lab/lab/show?id={run}:a"
    text = client(run.root).get(address).text
    assert re.search(r"<details><summary>Thought</summary><pre>deep</pre></details>", text)
    assert "<pre>short</pre>" in text


def test_the_progress_of_the_last_stage_is_made_on_request(run, reader):
    page = reader.get(f"/lab/{run.root.name}/runs/{run}/progress")
    assert page.status_code == 200 and " to step " in page.text


def test_a_completion_leads_to_its_neighbours_and_every_page_of_a_run_to_its_parts(run, reader):
    root, own = f"/lab/{run.root.name}", f"{run.root.name}/{run}"
    page = reader.get(f"{root}/show?id={run}:rl/5/odd%231").text
    assert [f"odd%23{n}" in page for n in (0, 2, 3)] == [True, True, False]
    large = f"/curves?run={own}&stage=rl&metric=reward_mean"
    for address in (f"{root}/samples?run={run}", f"{root}/runs/{run}/costs", large):
        nav = re.findall(r'href="([^"]*)"', reader.get(address).text.partition("<main")[0])
        for part in ("samples", "answers", "curves", "progress", "costs", f"runs/{run}/"):
            assert any(part in link for link in nav), (address, part)
    assert "all curves of rl" in reader.get(large).text
