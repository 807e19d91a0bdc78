"""An agent's calls are turns: what it sent is what was read, what it got is what was sampled."""

import asyncio
import re
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.agents.gateway import reward_in
from assay.agents.host import Host
from assay.agents.task import AgentEpisode
from assay.data.episode import Reward, row_values, tokens_of
from assay.rl.policy import Sampling
from assay.tasks.helper_model import HelperAnswer
from tests.agents.scripted import ROWS, Scripted, renderer, run

LOOP = """
TOOLS = [{"type": "function", "function": {"name": "add", "description": "a + b",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"},
                                                    "b": {"type": "integer"}}}}}]

async def solve(row, client):
    import json
    messages = [{"role": "user", "content": row.messages[0].content}]
    for _ in range(4):
        answer = await client.chat.completions.create(
            model="policy", messages=messages, tools=TOOLS)
        message = answer.choices[0].message
        if not message.tool_calls:
            return float(message.content.strip() == str(row.gold))
        calls = [{"id": c.id, "type": "function", "function": {
            "name": c.function.name, "arguments": c.function.arguments}}
            for c in message.tool_calls]
        messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        for call in message.tool_calls:
            numbers = json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": str(numbers["a"] + numbers["b"])})
    return 0.0
"""


def adds(text: str, key: str) -> str:
    """Calls the tool, then says what it told."""
    told = re.search(r"<\|im_start\|>tool\n(\d+)<\|im_end\|>", text)
    if told:
        return told[1]
    a, b = re.search(r"What is (\d+) \+ (\d+)\?", text).groups()  # type: ignore[union-attr]
    return f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'


ASK = """
import asyncio

def ask(client, text="What is 1 + 1?", model="policy", **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=messages, **more)

async def solve(row, client):
"""


@pytest.fixture
def policy() -> Scripted:
    return Scripted(renderer().tokenizer, adds)


def test_a_tool_loop_is_two_turns_whose_contexts_extend_each_other(tmp_path, policy):
    outcome = run(tmp_path, LOOP, policy)
    assert [reward.value for reward in outcome.rewards] == [1.0] * 6
    sampled = {(context, actions) for _, context, actions in policy.drawn}
    for played in outcome.played:
        first, second = played.turns
        assert {(each.context, each.actions) for each in played.turns} <= sampled
        both = (*tokens_of(first.context), *first.actions)
        assert tokens_of(second.context)[: len(both)] == both
    assert not outcome.notes


def test_two_runs_draw_by_the_same_keys_whatever_order_calls_come_in(tmp_path, policy):
    run(tmp_path, LOOP, policy, together=1)
    again = Scripted(policy.tokenizer, adds)
    run(tmp_path, LOOP, again, together=6)
    assert sorted(policy.drawn) == sorted(again.drawn)
    assert len({key for key, _, _ in policy.drawn}) == len(policy.drawn)


def test_branches_are_turns_of_one_episode_in_one_order(tmp_path, policy):
    source = f"""{ASK}
    asked = (ask(client, f"What is {{n}} + 1?", n=2) for n in range(3))
    return float(all(len(each.choices) == 2 for each in await asyncio.gather(*asked)))
"""
    policy.reply = lambda text, key: key[-3:]
    outcome = run(tmp_path, source, policy, ROWS[:2])
    assert [reward.value for reward in outcome.rewards] == [1.0, 1.0]
    again = run(tmp_path, source, Scripted(policy.tokenizer, policy.reply), ROWS[:2])
    assert [p.turns for p in outcome.played] == [p.turns for p in again.played]
    assert [len(p.turns) for p in outcome.played] == [6, 6]


CLOSES = "import os, time; os.write(1, b'{\"reward\": 1}'); os.close(1); time.sleep(60)"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ValueError('no such tool')", "raised ValueError: no such tool"),
        ("import os; os._exit(3)", "process ended with exit code 3"),
        ("import time; time.sleep(60)", "no reward within 2 seconds"),
        ("return 'good'", "not a number or a Reward"),
        ("return None", "returned None"),
        ("import os; os.kill(os.getpid(), 9)", "ended with SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "ended with signal 40"),
        ("import sys; return sys.stdin.read() or 'nothing'", "not a number or a Reward"),
        (["no-such-program"], "cannot be started: No such file"),
        ([sys.executable, "-c", CLOSES], "no reward within 2 seconds"),
    ],
)
def test_an_agent_that_goes_wrong_abstains_with_its_reason(tmp_path, policy, body, why):
    source = body if isinstance(body, list) else f"def solve(row, client):\n    {body}\n"
    outcome = run(tmp_path, source, policy, ROWS[:2], settings={"deadline": 2.0})
    assert all(r.value is None and why in r.why for r in outcome.rewards), outcome.rewards


def test_every_one_of_equal_calls_that_wait_at_the_end_is_told_so_and_the_episode_is_closed(
    tmp_path, policy
):
    source = f"""{ASK}
    waiting = [asyncio.ensure_future(ask(client)) for _ in range(3)]
    await asyncio.sleep(2)
    return 1.0
"""
    policy.reply = lambda text, key: (time.sleep(4), "2")[1]
    (environment,) = run(tmp_path, source, policy, ROWS[:1]).environments
    assert "3 of its calls waited" in environment.reward.why
    assert all(call.done.done() for call in environment.calls)
    assert not environment.agent.episodes


@pytest.mark.parametrize("more", ["n=2, stream=True", "top_logprobs=3, logprobs=True"])
def test_what_would_be_lost_in_silence_is_refused(tmp_path, policy, more):
    source = f"""{ASK}
    try:
        await ask(client, {more})
    except Exception as error:
        return float("n: a stream" in str(error) or "top_logprobs" in str(error))
    return 0.0
"""
    assert run(tmp_path, source, policy, ROWS[:1]).rewards[0].value == 1.0


def test_a_context_that_is_too_long_is_told_to_the_agent_as_openai_does(tmp_path, policy):
    source = f"""{ASK}
    try:
        await ask(client, "x" * 900)
    except Exception as error:
        return float("longer than the model's context" in str(error))
    return 0.0
"""
    outcome = run(tmp_path, source, policy, ROWS[:1], positions=512)
    assert outcome.rewards[0].value == 1.0
    assert outcome.environments[0].completion("stop").ended == "context"


def test_settings_that_the_agent_asks_for_are_noted_once_and_not_obeyed(tmp_path, policy):
    source = f"""{ASK}
    for _ in range(2):
        await ask(client, model="gpt-4o", temperature=0.2, top_p=0.5)
    return 1.0
"""
    seen = []
    right = policy.sample
    policy.sample = lambda c, k, s: seen.append(s) or right(c, k, s)  # type: ignore[method-assign]
    outcome = run(tmp_path, source, policy, ROWS[:2])
    assert {(s.temperature, s.top_p) for s in seen} == {(1.0, 1.0)}
    names = sorted(note.split(" for ")[1].split(" =")[0] for note in outcome.notes)
    assert names == ["model", "temperature", "top_p"]


def test_a_model_that_is_none_is_noted_and_refused_where_the_policy_was_asked_by_its_name(
    tmp_path, policy
):
    source = """
async def solve(row, client):
    async def ask(name):
        await client.chat.completions.create(model=name,
            messages=[{"role": "user", "content": "What is 1 + 1?"}])
    for name in ("gpt-4o", "planner", "policy"):
        await ask(name)
    await ask("grader")
"""
    outcome = run(tmp_path, source, policy, ROWS[:2])
    for reward in outcome.rewards:
        assert reward.value is None and "no model 'grader': there are policy" in reward.why
    assert [len(played.turns) for played in outcome.played] == [3, 3]
    names = [note.split(" = ")[1].split(";")[0] for note in outcome.notes]
    assert names == ["'gpt-4o'", "'planner'"]


def test_a_helper_answers_up_to_a_stop_and_refuses_what_it_does_not_do(tmp_path, policy):
    source = """
async def solve(row, client):
    async def ask(**more):
        answer = await client.chat.completions.create(model="judge", **more,
            messages=[{"role": "user", "content": "Is it right?"}])
        return answer.choices[0].message.content
    said = await ask(stop=["."], temperature=0.3)
    refused = 0
    for more in ({"n": 2}, {"logprobs": True}, {"tools": [{"type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}):
        try:
            await ask(**more)
        except Exception as error:
            refused += "judge gives one answer" in str(error)
    return refused + (said == "Yes")
"""
    judge = SimpleNamespace(
        name="judge",
        sampling=Sampling(0.0, 8),
        answer=lambda batch: [HelperAnswer("Yes. No.") for _ in batch],
    )
    outcome = run(tmp_path, source, policy, ROWS[:1], helpers={"judge": judge})
    assert outcome.rewards[0].value == 4.0 and not outcome.played[0].turns
    assert [note.split(" for ")[1].split(";")[0] for note in outcome.notes] == ["temperature = 0.3"]


def test_what_is_asked_without_a_key_as_by_a_check_draws_by_its_row():
    rows: list[str] = []
    start = {"start": lambda episode: rows.append(episode.key.row), "news": threading.Condition()}
    for row in ROWS[:2]:
        AgentEpisode(row, agent=cast(Any, SimpleNamespace(**start)), outcome=Reward(0.0)).asks()
    assert rows == [row.id for row in ROWS[:2]]


def test_a_program_of_any_language_gets_its_row_and_prints_its_reward(tmp_path, policy):
    (tmp_path / "agent.py").write_text(
        "import json, os, sys, urllib.request as u\n"
        "row = json.load(sys.stdin)\n"
        "body = {'model': 'policy', 'messages': row['messages'], 'stop': '0'}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "key = {'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY'],\n"
        "       'content-type': 'application/json'}\n"
        "reply = u.urlopen(u.Request(url, json.dumps(body).encode(), key)).read()\n"
        "text = json.loads(reply)['choices'][0]['message']['content']\n"
        "print('thinking')\n"
        "facts = {'text': text, 'level': row['level']}\n"
        "print(json.dumps({'reward': float('0' not in text), 'facts': facts}))\n"
    )
    policy.reply = lambda text, key: "1 and 10"
    rows = [replace(row, extra={"level": 2}) for row in ROWS[:3]]
    (one, *others) = run(tmp_path, [sys.executable, "agent.py"], policy, rows).rewards
    assert one == Reward(1.0, facts={"text": "1 and 1", "level": 2.0}) and others == [one, one]


@pytest.mark.parametrize("line", ['{"reward": NaN}', "[" * 100_000, "[1]", '{"parts": {}}'])
def test_a_last_line_that_is_no_reward_abstains(line):
    assert reward_in(line).value is None and "is no reward" in reward_in(line).why
    assert reward_in('{"reward": null}').why == "the agent abstained"


def test_a_kept_program_has_one_episode_after_another(tmp_path, policy):
    (tmp_path / "agent.py").write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    given = json.loads(line)\n"
        "    print(json.dumps({'reward': 1.0, 'facts': {'pid': str(os.getpid())}}), flush=True)\n"
    )
    command = [sys.executable, "agent.py"]
    outcome = run(tmp_path, command, policy, settings={"kept": True}, together=1)
    assert [reward.value for reward in outcome.rewards] == [1.0] * 6
    assert len({reward.facts["pid"] for reward in outcome.rewards}) == 1


def test_a_kept_program_that_has_ended_is_started_anew():
    script = "import os, time; input(); print(os.getpid(), flush=True); time.sleep(0.5)"
    settings = {"command": [sys.executable, "-c", script], "kept": True, "folder": "."}
    host = Host({**settings, "url": "", "deadline": 20.0}, None)

    async def two() -> set[int]:
        first = await host.play({"key": "one", "row": row_values(ROWS[0])})
        for each in host.idle:
            await each.output.read()
        second = await host.play({"key": "two", "row": row_values(ROWS[0])})
        return {int(first), int(second)}

    assert len(asyncio.run(two())) == 2


def test_a_foreign_key_and_a_call_after_the_end_are_refused(tmp_path, policy):
    source = """
import httpx

async def solve(row, client):
    async with httpx.AsyncClient() as http:
        answer = await http.post(str(client.base_url).rstrip("/") + "/chat/completions",
            headers={"authorization": "Bearer other"},
            json={"model": "policy", "messages": []})
    return float(answer.status_code == 401)
"""
    assert run(tmp_path, source, policy, ROWS[:1]).rewards[0].value == 1.0
