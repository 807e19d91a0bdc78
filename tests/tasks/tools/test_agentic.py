"""Memories and web searches: what is kept between conversations, and what counts as an answer."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row, ToolCall
from assay.engines.environments import ask
from assay.sandbox.pool import Worker
from assay.tasks.task import BenchmarkOptions, benchmark
from assay.tasks.tools.agentic import AGENTIC, KEY, AgenticDialogue, agentic, missing
from assay.tasks.tools.parsing import call_text
from assay.tasks.tools.simulation import wheel_folders
from assay.tasks.tools.task import TASK
from tests.tasks.tools.scripted import entries, play
from tests.tasks.tools.upstream import loaded

PROGRAM = Path(__file__).with_name("upstream_v4.py")
HERE = ("memory_kv", "memory_rec_sum")
WRITE = {
    "memory_kv": ("core_memory_add", "archival_memory_add"),
    "memory_rec_sum": ("memory_append",),
}


def call(name: str, **arguments: Any) -> str:
    return call_text([ToolCall(name, arguments)])


def note(category: str, number: int) -> list[str]:
    """Calls that write down that this conversation was held."""
    texts = {"key": f"talk_{number}", "value": f"held talk {number}"}
    given = texts if category == "memory_kv" else {"text": f"held talk {number}; "}
    return [call(name, **given) for name in WRITE[category]]


def answers(row: Row, right: bool = True, every: int = 1) -> Iterator[list[str]]:
    """What a policy says in each conversation: notes, then the known answers to questions."""
    for number, entry in enumerate(row.extra["conversations"]):
        if entry["id"] not in row.gold:
            later = ["Noted."] * len(entry["question"])
            yield [*(note(row.extra["category"], number) if number % every == 0 else []), *later]
        else:
            known = row.gold[entry["id"]][0] if right else "nothing"
            yield [f"{{'answer': {known!r}, 'context': 'remembered'}}"]


def played(row: Row, said: Iterator[list[str]]) -> Completion:
    return play(AgenticDialogue(row), [text for talk in said for text in talk])


def systems(completion: Completion) -> list[str]:
    return [m.content for m in completion.messages if m.role == "system"]


@pytest.mark.parametrize("category", AGENTIC)
def test_entries_and_answers_are_those_of_upstreams_loader(category: str):
    upstream, truths = loaded(*AGENTIC)[category]
    rows = entries(category)
    found = {e["id"]: (e, row) for row in rows for e in row.extra["conversations"]}
    for theirs in upstream:
        ours, row = found.pop(theirs["id"])
        assert ours == {key: theirs[key] for key in ours}
        assert list(row.tools) == theirs["function"]
    assert not found
    gold = {id_: answer for row in rows for id_, answer in row.gold.items()}
    assert len(gold) == len(truths) == (155 if category.startswith("memory") else 100)
    numbers = [int(id_.removeprefix(f"{category}_").split("-")[0]) for id_ in gold]
    assert all(truths[n] == gold[id_] for n, id_ in zip(numbers, gold, strict=True))


@pytest.mark.parametrize("category", HERE)
def test_what_is_written_down_is_there_in_later_conversations_and_known_answers_score(category):
    row = entries(category)[-1]
    done = played(row, answers(row))
    reward = agentic(row, done)
    assert (reward.value, reward.outcome, reward.facts) == (1.0, "right", {})
    assert {name for name, part in reward.parts.items() if part} == set(row.gold)
    first, *_, last = systems(done)
    assert "talk 0" in first and "talk 1" not in first
    assert all(f"talk {number}" in last for number in range(5))


def test_wrong_missing_and_shuffled_answers_do_not_score():
    row = entries("memory_rec_sum")[-1]
    assert agentic(row, Completion("")).outcome == "agentic:inference_error"
    assert agentic(row, played(row, answers(row, right=False))).value == 0.0
    shuffled = list(answers(row))
    known = [n for n, e in enumerate(row.extra["conversations"]) if e["id"] in row.gold]
    moved = dict(zip(known, [*known[1:], known[0]], strict=True))
    reward = agentic(
        row, played(row, iter(shuffled[moved.get(n, n)] for n in range(len(shuffled))))
    )
    assert reward.value is not None and reward.value < 0.2
    assert reward.outcome == "agentic:answer_not_found" and len(reward.facts) > 20


def echo(row: Row, entry: Any, snapshot: Any, done: Any, calls: Any) -> dict[str, Any]:
    """Stands for the memories: keeps what was called."""
    kept = [*(snapshot or []), *done, *calls]
    shown = {"role": "system", "content": f"memory: {snapshot}"}
    asked = [each for each in entry["question"][0] if each["role"] == "user"]
    question = [[shown, *asked], *entry["question"][1:]]
    return {"results": ["ok"] * len(calls), "question": question, "snapshot": kept}


def test_questions_change_no_memory_and_a_conversation_given_up_leaves_none():
    row = entries("memory_kv")[-1]
    talks = len(row.extra["conversations"])
    said = AgenticDialogue(row, echo)
    for number, text in enumerate(answers(row)):
        assert said.asks() is not None
        said.hears(f"[f({number})]")
        if number == 1:
            assert said.skips()
            continue
        for line in text[-len(row.extra["conversations"][number]["question"]) :]:
            said.hears(line)
    assert said.asks() is None
    kept = systems(Completion("", messages=said.messages))
    assert len(kept) == talks - 1
    assert kept[-1] == "memory: ['f(0)', 'f(2)', 'f(3)', 'f(4)']"
    assert agentic(row, Completion("", messages=said.messages)).value == 1.0


WRONG, NONE = "agentic:answer_not_found", "agentic:no_last_message"


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (["It was may-3 1990."], WRONG),
        (["on 3 MAY 1990!"], "right"),
        (["<think>3 May 1990</think>I do not know"], WRONG),
        ([call("f"), "3 May 1990"], "right"),
        (["3 May 1990", call("f")], "right"),
        ([call("f")], NONE),
        ([""], NONE),
        ([], "agentic:inference_error"),
    ],
)
def test_an_answer_is_looked_for_in_the_last_message_that_calls_nothing(said, outcome):
    extra = {"conversations": [{"id": "q"}]}
    row = Row("r", (Message("user", "?"),), gold={"q": ["3 May, 1990"]}, extra=extra)
    messages = tuple(Message("assistant", text) for text in said)
    assert agentic(row, Completion("", messages=messages)).outcome == outcome


def test_what_lacks_a_part_says_which_and_starts_nothing(monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    assert missing("memory_kv") == missing("memory_rec_sum") == ""
    assert f"the variable {KEY} is not set" in missing("web_search_base")
    monkeypatch.setitem(AGENTIC, "memory_vector", type(AGENTIC["memory_kv"])(parts={"no-such": ""}))  # type: ignore[arg-type]
    made = benchmark(TASK, "bfcl/memory_vector", BenchmarkOptions())
    assert made.missing == "not installed: no-such (pip install no-such)"
    assert made.dialogue is None and len(made.items) == 5


STUBS = {
    "serpapi": """
class GoogleSearch:
    def __init__(self, params): self.params = params
    def get_dict(self):
        if self.params["q"] == "broken": raise OSError("unreachable")
        if self.params["api_key"] != "k": return {"error": "Invalid API key."}
        return {"organic_results": [{"title": "T", "link": "http://x", "snippet": "S"}] * 3}
""",
    "html2text": "",
    "bs4": "BeautifulSoup = None",
    "requests": """
import socket
def get(url, **_): socket.getaddrinfo(url.split("/")[2], 80)
""",
}


@pytest.fixture
def searched(tmp_path: Path):
    for name, text in STUBS.items():
        (tmp_path / f"{name}.py").write_text(text)
    row = entries("web_search_base")[0]

    def search(worker: Worker, *calls: str, snippets: bool = True, key: str = "k"):
        entry, names = row.extra["conversations"][0], [doc["name"] for doc in row.tools]
        sent = {
            "entry": entry,
            "functions": names,
            "calls": calls,
            "snippets": snippets,
            "key": key,
        }
        return worker.call(sent, 30.0)

    place = "tests.tasks.tools.worker_batches:web:" + str(tmp_path)
    with Worker(place, folders=wheel_folders()) as worker:
        yield lambda *calls, **options: search(worker, *calls, **options)


def test_a_search_answers_as_upstreams_and_a_search_engine_that_fails_is_no_wrong_answer(searched):
    found = searched("search_engine_query(keywords='a', max_results=1)").value
    assert found == ["[{'title': 'T', 'href': 'http://x', 'body': 'S'}]"]
    bare = searched("search_engine_query('a', 1)", snippets=False).value
    assert bare == ["[{'title': 'T', 'href': 'http://x'}]"]
    assert "unreachable" in searched("search_engine_query('broken')").why
    assert "Invalid API key" in searched("search_engine_query('a')", key="other").why


def test_no_address_of_the_machines_own_is_fetched(searched):
    (said,) = searched("fetch_url_content(url='http://127.0.0.1/secret')").value
    assert "is no public address" in json.loads(said)["error"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("category", HERE)
def test_conversations_memories_and_verdicts_are_those_of_the_whole_package(category, tmp_path):
    rng, scripts = random.Random(3), {}
    for row in entries(category):
        said = [list(talk) for talk in answers(row, every=2)]
        for talk in said:
            if rng.random() < 0.3:
                talk.insert(0, rng.choice([call("memory_clear"), call("core_memory_list_keys")]))
            if rng.random() < 0.3:
                talk[-1] = rng.choice(["I do not know.", "", talk[-1].upper()])
        scripts[row.id.removeprefix(f"{category}_")] = said
    request = {"scratch": str(tmp_path), "memories": {category: scripts}}
    theirs = ask("bfcl", PROGRAM, request, timeout=1500)["memories"][category]
    for row in entries(category):
        scenario = row.id.removeprefix(f"{category}_")
        done, shown = AgenticDialogue(row), []
        for talk in scripts[scenario]:
            left, asked = iter(talk), []
            place = len(done._left)
            while (seen := done.asks()) is not None and len(done._left) == place:
                asked.append([[m.role, m.content] for m in seen.messages if m.role != "assistant"])
                done.hears(next(left, ""))
            shown.append(asked)
        expected = [
            [[pair for pair in query if pair[0] != "assistant"] for query in talk]
            for talk in theirs[scenario]["asked"]
        ]
        assert shown == expected
        facts = agentic(row, Completion("", messages=done.messages)).facts
        wrong = {id_: error for id_, error in theirs[scenario]["errors"].items() if error}
        assert facts == wrong and 0 < len(wrong) < len(row.gold)
