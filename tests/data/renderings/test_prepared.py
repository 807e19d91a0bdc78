"""What was rendered before is read again where nothing that it depends on changed, else not."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.renderings import packed_rows as kept
from assay.data.renderings.packed_rows import LONG, prepared
from assay.data.renderings.rendering import RenderedConversation, Renderer
from assay.data.renderings.template import with_options
from assay.data.row import Message, ToolCall
from tests.data.chat import tokenizer
from tests.data.talks import WEATHER

TALK = (
    Message("user", "Hello there. " * (LONG // 8)),
    Message("assistant", "", (ToolCall("f", {"n": 1}),)),
    Message("tool", "fine"),
    Message("assistant", "I am fine, é漢"),
)
CHATML = Renderer(tokenizer("chatml"), "hermes")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path


def rendered_anew(monkeypatch: pytest.MonkeyPatch, *asked: object) -> bool:
    """Whether this is rendered and not read."""
    calls = []

    def render(self: Renderer, *_: object, generation: bool) -> RenderedConversation:
        calls.append(generation)
        return RenderedConversation((1,), ())

    with monkeypatch.context() as patch:
        patch.setattr(Renderer, "_render", render)
        prepared(*asked)  # type: ignore[arg-type]
    return bool(calls)


@pytest.mark.parametrize("generation", [False, True])
def test_what_is_read_again_is_what_was_rendered(
    generation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = TALK[:-1] if generation else TALK
    own = CHATML.rendered_prompt if generation else CHATML.conversation
    first = prepared(CHATML, talk, [WEATHER], generation)
    assert not rendered_anew(monkeypatch, CHATML, talk, [WEATHER], generation)
    assert prepared(CHATML, talk, [WEATHER], generation) == first == own(talk, [WEATHER])


def test_all_that_tokens_depend_on_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    qwen = Renderer(tokenizer("qwen3"), "template")
    prepared(CHATML, TALK, [], False)
    other = replace(TALK[1], tool_calls=(ToolCall("f", {"n": 1.0}),))
    template = f"{tokenizer('chatml').chat_template}{{# another #}}"
    changed = [
        (CHATML, (TALK[0], other, *TALK[2:]), [], False),
        (CHATML, (*TALK[:3], replace(TALK[3], content="I am fine")), [], False),
        (CHATML, TALK, [WEATHER], False),
        (CHATML, TALK, [], True),
        (replace(CHATML, name="template_bare"), TALK, [], False),
        (replace(CHATML, kept=("<|im_start|>",)), TALK, [], False),
        (qwen, TALK, [], False),
        (
            Renderer(with_options(qwen.tokenizer, {"messages_": 1}, strict=False), "hermes"),
            TALK,
            [],
            True,
        ),
    ]
    assert all(rendered_anew(monkeypatch, *each) for each in changed)
    monkeypatch.setattr(tokenizer("chatml"), "chat_template", template)
    assert rendered_anew(monkeypatch, replace(CHATML), TALK, [], False)


def test_short_conversations_are_not_kept(cache: Path) -> None:
    prepared(CHATML, (Message("user", "a"), Message("assistant", "b")), [], False)
    assert not [*cache.iterdir()]


def test_what_was_not_used_for_longest_goes_first(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = [(replace(TALK[0], content=f"{n} {TALK[0].content}"), *TALK[1:]) for n in range(6)]
    for day, talk in enumerate(talks):
        monkeypatch.setattr(kept.time, "time", lambda day=day: day * kept.DAY * 2)
        prepared(CHATML, talk, [], False)
    monkeypatch.setattr(kept.time, "time", lambda: 20 * kept.DAY)
    prepared(CHATML, talks[0], [], False)
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    kept._shrink(sqlite3.connect(cache / "prepared.sqlite", isolation_level=None))
    anew = [rendered_anew(monkeypatch, CHATML, talk, [], False) for talk in talks]
    assert anew == [False, True, True, True, False, False]


WRITES = """
from dataclasses import replace
from tests.data.renderings.test_prepared import CHATML, TALK, prepared
for n in range(10**6):
    prepared(CHATML, (replace(TALK[0], content=f"{n} {TALK[0].content}"), *TALK[1:]), [], False)
"""


def test_two_processes_write_at_once_and_one_that_is_killed_leaves_whole_conversations(
    cache: Path,
) -> None:
    command = [sys.executable, "-c", WRITES]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    count, file = 0, cache / "prepared.sqlite"
    while count < 40:
        assert all(process.poll() is None for process in both)
        time.sleep(0.05)
        if file.exists():
            store = sqlite3.connect(file, timeout=60)
            (tables,) = store.execute("SELECT count(*) FROM sqlite_master").fetchone()
            count = tables and store.execute("SELECT count(*) FROM prepared").fetchone()[0]
            store.close()
    for process in both:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    store = sqlite3.connect(file)
    assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for n in range(20):
        talk = (replace(TALK[0], content=f"{n} {TALK[0].content}"), *TALK[1:])
        assert prepared(CHATML, talk, [], False) == CHATML.conversation(talk)


def test_a_record_that_was_changed_is_rendered_anew(cache: Path) -> None:
    right = prepared(CHATML, TALK, (), False)
    with sqlite3.connect(cache / "prepared.sqlite") as store:
        (ids,) = store.execute("SELECT ids FROM prepared").fetchone()
        store.execute("UPDATE prepared SET ids = ?", (bytes(len(ids)),))
    assert prepared(CHATML, TALK, (), False) == right
    assert prepared(CHATML, TALK, (), False) == right


@pytest.mark.parametrize("junk", [b"no database", b""])
def test_a_cache_that_cannot_be_used_costs_time_alone(
    cache: Path, junk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if junk:
        (cache / "prepared.sqlite").write_bytes(junk * 1000)
    else:
        monkeypatch.setenv("ASSAY_CACHE", "/proc/no-such-folder")
    assert prepared(CHATML, TALK, (), False) == CHATML.conversation(TALK, ())
