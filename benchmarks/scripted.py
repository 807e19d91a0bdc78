"""A scripted model for BFCL's entries: right for some, wrong for others, the same at every call.

`Script` holds one entry's answers and can be judged by Assay; `ScriptedSampler` stands where the
engine stands behind a server, and finds the entry by the question in the prompt. Asking BFCL is
`bfcl_agreement`'s part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.data.episode import Completion, Turn
from assay.data.row import Row, ToolCall
from assay.rl.policy import SampleKey
from assay.rollout.engine import Watch
from assay.rollout.sampling import Sampling
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions, benchmark, task
from assay.tasks.tools.bfcl import target_calls
from assay.tasks.tools.prompts import call_text

Verdicts = Mapping[str, bool]
START, RESPONSE = "<|im_start|>", "<tool_response>"
PLAIN = "I cannot help with that."


def _other_value(calls: Sequence[ToolCall]) -> str:
    first, *rest = calls
    name = next(iter(first.arguments), "none")
    changed = ToolCall(first.name, {**first.arguments, name: "something else"})
    return call_text([changed, *rest])


def _fewer_arguments(calls: Sequence[ToolCall]) -> str:
    first, *rest = calls
    return call_text([ToolCall(first.name, dict(list(first.arguments.items())[1:])), *rest])


def _bare(calls: Sequence[ToolCall]) -> str:
    return call_text(calls).replace("<tool_call>\n", "<tool_call>").replace("\n</tool", "</tool")


SINGLE: Mapping[str, Callable[[Sequence[ToolCall]], str]] = {
    "right": call_text,
    "right, after words": lambda calls: f"Let me see.\n{call_text(calls)}",
    "another value": _other_value,
    "right, after reasoning": lambda calls: f"<think>\nEasy.\n</think>\n\n{call_text(calls)}",
    "an argument left out": _fewer_arguments,
    "another function": lambda calls: call_text([ToolCall("nothing", c.arguments) for c in calls]),
    "right, before words": lambda calls: f"{call_text(calls)}\nDone.",
    "words alone": lambda calls: PLAIN,
    "called twice": lambda calls: call_text([*calls, *calls]),
    "broken JSON": lambda calls: call_text(calls).replace('"name"', '"name'),
    "right again": call_text,
}
DIFFERENT: Mapping[str, Callable[[Sequence[ToolCall]], str]] = {
    "no line breaks in the tags": _bare,
    "a broken call beside a right one": lambda calls: (
        f"<tool_call>\nnothing\n</tool_call>\n{call_text(calls)}"
    ),
    "called in the reasoning as well": lambda calls: (
        f"<think>\n{call_text(calls)}\n</think>\n\n{call_text(calls)}"
    ),
}
"""BFCL wants line breaks inside the tags, passes over broken blocks, and cuts the reasoning off."""
VARIANTS = (*SINGLE, *DIFFERENT)


def known_to_differ(variant: object) -> bool:
    """Whether the two ways read this variant differently by their rules."""
    return variant in DIFFERENT


@dataclass(frozen=True)
class Script:
    """What the model says to one entry."""

    category: str
    row: Row
    variant: str
    answers: tuple[tuple[str, ...], ...]
    """By the user's turn and the step in it; behind the last step comes PLAIN."""

    @property
    def entry(self) -> str:
        """BFCL's id of the entry."""
        return self.row.id

    @property
    def question(self) -> str:
        """What the entry begins with, which names it."""
        return "\x1f".join(m.content.strip() for m in self.row.prompt if m.role == "user")

    def says(self, turn: int, step: int) -> str:
        """The answer to the user's message number `turn` after `step` answers to it."""
        steps = self.answers[turn] if turn < len(self.answers) else ()
        return steps[step] if step < len(steps) else PLAIN

    def judged_here(self) -> bool:
        """Assay's verdict, by the benchmark's own score."""
        made = benchmark(task("tools"), f"bfcl/{self.category}", BenchmarkOptions())
        (item,) = [item for item in made.items if item.id == self.entry]
        completion = Completion(self.says(0, 0))
        with RewardRunner(made.score, workers=1) as runner:
            (reward,) = runner.score([(item, completion)])
        if reward.value is None:
            raise SystemExit(f"{self.entry}: Assay abstained: {reward.why}")
        return reward.value == made.max_score


def scripts_of(category: str, count: int) -> list[Script]:
    """Scripts for the first entries of a category whose question names them, one variant each."""
    made = benchmark(task("tools"), f"bfcl/{category}", BenchmarkOptions())
    asked = [Script(category, item, "", ()).question for item in made.items]
    items = [i for i, text in zip(made.items, asked, strict=True) if asked.count(text) == 1]
    items = [item for item in items if "no_target" not in item.extra]
    return [single(category, item, index) for index, item in enumerate(items[:count])]


def single(category: str, row: Row, index: int) -> Script:
    """The script of an entry that takes one answer."""
    variant = VARIANTS[index % len(VARIANTS)]
    say = {**SINGLE, **DIFFERENT}[variant]
    return Script(category, row, variant, ((say(target_calls(row)),),))


@dataclass(frozen=True)
class ScriptedSampler:
    """Answers prompts in ChatML from scripts; see `assay.lab.serving.batching.BatchSampler`."""

    tokenizer: Any
    end_token: int
    scripts: Sequence[Script]

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
    ) -> list[Turn]:
        """One scripted turn per context. Raises LookupError for a question of no script."""
        return [self.turn(context, sampling.max_tokens) for context in contexts]

    def turn(self, context: tuple[int, ...], limit: int) -> Turn:
        """The answer to one prompt, cut at the limit as a model's would be."""
        question, turn, step = place(self.tokenizer.decode(context, skip_special_tokens=False))
        (script,) = [s for s in self.scripts if question.startswith(s.question)]
        said = self.tokenizer.encode(script.says(turn, step), add_special_tokens=False)
        actions = (*said, self.end_token)[:limit]
        ended = "stop" if len(said) < limit else "length"
        return Turn(context, actions, (True,) * len(actions), (0.0,) * len(actions), ended)


def place(prompt: str) -> tuple[str, int, int]:
    """The first question, the number of the user's turn, and the answers in it so far."""
    said = [message.partition("\n") for message in prompt.split(START)[1:]]
    talk = [(role, text.replace("<|im_end|>", "").strip()) for role, _, text in said]
    talk = [(role, text) for role, text in talk[:-1] if role != "system"]
    spoken = [(r, t) for r, t in talk if r == "assistant" or not t.startswith(RESPONSE)]
    first: list[str] = []
    for role, text in spoken:
        if role == "assistant":
            break
        first.append(text)
    later = spoken[len(first) :]
    users = [index for index, (role, _) in enumerate(later) if role == "user"]
    step = len(later) - (users[-1] + 1 if users else 0)
    return "\x1f".join(first), len(users), step
