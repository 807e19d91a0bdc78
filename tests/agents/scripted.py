"""A policy that answers by a function of the text that it reads, and agents run against it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.agents.gateway import Agent
from assay.agents.task import AgentEpisode
from assay.data.episode import Context, Turn, tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, Row
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import Played, run_episodes
from assay.tasks.user_code import function_in, place_of
from tests.models.folders import tiny_tokenizer

TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] or '' }}{% for c in m['tool_calls'] or [] %}<tool_call>\n"
    '{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROWS = tuple(Row(f"r{n}", (Message("user", f"What is {n} + {n}?"),), gold=2 * n) for n in range(6))


@dataclass
class Scripted:
    """Answers with what `reply` says to the text it read and the key's row; an end token last."""

    tokenizer: Any
    reply: Callable[[str, str], str]
    drawn: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    """Key, context and actions of each turn."""
    lock: Any = field(default_factory=threading.Lock)

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        turns = []
        for context, key in zip(contexts, keys, strict=True):
            text = self.reply(self.tokenizer.decode(list(tokens_of(context))), key.row)
            tokens = self.tokenizer.encode(text, add_special_tokens=False)
            end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
            whole = len(tokens) < sampling.max_tokens
            actions = (*tokens, end) if whole else tuple(tokens[: sampling.max_tokens])
            self.drawn.append((key.row, tokens_of(context), actions))
            logps = tuple(-0.5 for _ in actions)
            ended = "stop" if whole else "length"
            turns.append(Turn(context, actions, (True,) * len(actions), logps, ended))
        return turns

    @contextmanager
    def conversations(self) -> Iterator[int | None]:
        yield 1 << 20


def renderer(template: str = TOOLS) -> Renderer:
    made = tiny_tokenizer()
    made.chat_template = template
    return Renderer(made, "template")


@dataclass
class Outcome:
    """What came of some episodes."""

    played: list[Played]
    environments: list[AgentEpisode]
    notes: list[str]

    @property
    def rewards(self) -> list[Any]:
        return [each.reward for each in self.environments]


def run(
    folder: Path,
    source: str | Sequence[str],
    policy: Scripted,
    rows: Sequence[Row] = ROWS,
    *,
    settings: Mapping[str, Any] | None = None,
    helpers: Mapping[str, Any] | None = None,
    positions: int | None = None,
    max_tokens: int = 256,
    together: int = 4,
) -> Outcome:
    """The episodes of an agent: the source of a function `solve`, or a command."""
    if isinstance(source, str):
        (folder / "agent.py").write_text(source)
        function, _ = function_in("path:agent.py:solve", folder)
        started: dict[str, Any] = {"function": place_of(function)}
    else:
        started = {"command": list(source), "folder": str(folder)}
    notes: list[str] = []
    made = renderer()
    ends = set(policy.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))

    def decode(tokens: Sequence[int]) -> str:
        kept = [token for token in tokens if token not in ends]
        return policy.tokenizer.decode(kept, skip_special_tokens=False)

    settings = {"deadline": 20.0, **started, **(settings or {})}
    agent = Agent(settings, together, {}, lambda: helpers or {}, notes.append)
    with closing(agent):
        keys = [SampleKey(7, row.id, 0) for row in rows]
        environments = [AgentEpisode(row, agent=agent).in_tokens(made, decode) for row in rows]
        sampling = Sampling(1.0, max_tokens)
        played = run_episodes(policy, environments, keys, sampling, positions)
    return Outcome(played, environments, notes)
