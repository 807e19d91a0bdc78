"""A scripted model for BFCL's entries: right for some, wrong for others, the same at every call.

`Script` holds one entry's answers and can be judged by Assay; `ScriptedDecoder` stands where the
sampler stands behind a server, and finds the entry by the question in the prompt. Asks nothing of
BFCL itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from transformers import PreTrainedTokenizerBase

from assay.data.episode import Completion
from assay.data.row import Row, ToolCall
from assay.labs.tools.parsing import call_text
from assay.labs.tools.single_turn import target_calls
from assay.rl.policy import SampleKey
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, BenchmarkOptions, benchmark, task
from tests.labs.tools.scripted import truth_calls
from tests.serve.scripted import ScriptedSampler

START, RESPONSE = "<|im_start|>", "<tool_response>"
PLAIN = "I cannot help with that."
JOIN = "\x1f"


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
    "called twice": lambda calls: call_text([*calls, *calls]),
    "broken JSON": lambda calls: call_text(calls).replace('"name"', '"name'),
    "no line breaks in the tags": _bare,
    "a broken call beside a right one": lambda calls: (
        f"<tool_call>\nnothing\n</tool_call>\n{call_text(calls)}"
    ),
}
Turns = Sequence[Sequence[ToolCall]]
"""The calls of the ground truth, by the user's turn."""
Steps = list[list[str]]
"""Answers by the user's turn and the step in it."""


def _stepwise(turns: Turns) -> Steps:
    return [[call_text([call]) for call in turn] for turn in turns]


def _last_left_out(turns: Turns) -> Steps:
    steps = _stepwise(turns)
    next(turn for turn in reversed(steps) if turn).pop()
    return steps


def _changed_first(turns: Turns) -> Steps:
    steps = _stepwise(turns)
    number = next(n for n, turn in enumerate(turns) if turn)
    steps[number][0] = _other_value(turns[number][:1])
    return steps


def _endless(turns: Turns) -> Steps:
    first = next(step for turn in _stepwise(turns) for step in turn)
    return [[first] * 30, *_stepwise(turns)[1:]]


SEVERAL: Mapping[str, Callable[[Turns], Steps]] = {
    "truth, a call a step": _stepwise,
    "truth, a turn at once": lambda turns: [[call_text(turn)] if turn else [] for turn in turns],
    "last call left out": _last_left_out,
    "another value at first": _changed_first,
    "every call twice": lambda turns: [[s for s in t for _ in (1, 2)] for t in _stepwise(turns)],
    "first turn passed over": lambda turns: [[], *_stepwise(turns)[1:]],
    "an unknown function first": lambda turns: [
        [call_text([ToolCall("nothing", {})]), *turn] for turn in _stepwise(turns)
    ],
    "a step that never ends": _endless,
}


@dataclass(frozen=True)
class Script:
    """The model's answers to one entry."""

    made: Benchmark
    row: Row
    variant: str = ""
    answers: Sequence[Sequence[str]] = ()
    """By the user's turn and the step in it; behind the last step comes PLAIN."""

    @property
    def entry(self) -> str:
        """BFCL's id of the entry."""
        return self.row.id

    @property
    def category(self) -> str:
        """BFCL's name of the category."""
        return self.row.extra["category"]

    @property
    def question(self) -> str:
        """What the entry begins with, which names it."""
        return JOIN.join(m.content.strip() for m in self.row.prompt if m.role == "user")

    def answer(self, turn: int, step: int) -> str:
        """The answer to the user's message number `turn` after `step` answers to it."""
        steps = self.answers[turn] if turn < len(self.answers) else ()
        return steps[step] if step < len(steps) else PLAIN

    def completion(self) -> Completion:
        """The script's answers in Assay's own dialogue with the entry."""
        if self.made.dialogue is None:
            return Completion(self.answer(0, 0))
        dialogue, written = self.made.dialogue(self.row), []
        while (asked := dialogue.asks()) is not None:
            later = [message.role for message in asked.messages[len(self.row.prompt) :]]
            turn = later.count("user")
            last = len(later) - later[::-1].index("user") if turn else 0
            written.append(self.answer(turn, later[last:].count("assistant")))
            dialogue.hears(written[-1], "stop")
        return Completion("\n".join(written), messages=dialogue.messages)

    def judged_here(self) -> bool:
        """Assay's verdict, by the benchmark's own score."""
        with RewardRunner(self.made.score, workers=1) as runner:
            (reward,) = runner.score([(self.row, self.completion())])
        if reward.value is None:
            raise AssertionError(f"{self.entry}: unscored: {reward.why}")
        return reward.value == self.made.max_score


def scripts_of(category: str, count: int) -> list[Script]:
    """Scripts for the first entries of a category whose question names them, one variant each."""
    made = benchmark(task("tools"), f"bfcl/{category}", BenchmarkOptions())
    asked = [Script(made, item).question for item in made.items]
    items = [i for i, text in zip(made.items, asked, strict=True) if asked.count(text) == 1]
    items = [item for item in items if "no_target" not in item.extra]
    write = single if made.dialogue is None else several
    return [write(made, item, index) for index, item in enumerate(items[:count])]


def single(made: Benchmark, row: Row, index: int) -> Script:
    """The script of an entry that takes one answer."""
    variant = list(SINGLE)[index % len(SINGLE)]
    calls = target_calls(row) if row.gold else any_call(row)
    return Script(made, row, variant, [[SINGLE[variant](calls)]])


def any_call(row: Row) -> tuple[ToolCall, ...]:
    """A call of a documented function, for an entry of a relevance category."""
    names = [doc["name"] for doc in row.tools] or ["nothing"]
    return (ToolCall(names[0], {}),)


def several(made: Benchmark, row: Row, index: int) -> Script:
    """The script of an entry that takes several turns."""
    variant = list(SEVERAL)[index % len(SEVERAL)]
    return Script(made, row, variant, SEVERAL[variant](truth_calls(row)))


class ScriptedDecoder(ScriptedSampler):
    """Answers prompts in ChatML from scripts."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, end_token: int, scripts: Sequence[Script]
    ):
        super().__init__(frozenset({end_token}))
        self.tokenizer, self.end_token, self.scripts = tokenizer, end_token, scripts
        self.asked: dict[str, tuple[int, ...]] = {}
        """Entry -> the first prompt that came for it."""

    def script(self, context: tuple[int, ...], key: SampleKey, begins: bool) -> list[int]:
        """The scripted answer. Raises LookupError for a question of no script."""
        return self.answer(context)

    def answer(self, context: tuple[int, ...]) -> list[int]:
        """The tokens of the answer to one prompt."""
        text = str(self.tokenizer.decode(list(context), skip_special_tokens=False))
        question, turn, step = place(text)
        (script,) = [s for s in self.scripts if question == s.question]
        if (turn, step) == (0, 0):
            self.asked[script.entry] = context
        answer = script.answer(turn, step)
        return [*self.tokenizer.encode(answer, add_special_tokens=False), self.end_token]


def place(prompt: str) -> tuple[str, int, int]:
    """The first question, the number of the user's turn, and the answers in it so far."""
    messages = [message.partition("\n") for message in prompt.split(START)[1:]]
    pairs = [(role, text.replace("<|im_end|>", "").strip()) for role, _, text in messages[:-1]]
    turns = [
        (role, text)
        for role, text in pairs
        if role == "assistant" or (role != "system" and not text.startswith(RESPONSE))
    ]
    first = [text for _, text in takewhile(lambda turn: turn[0] != "assistant", turns)]
    later = turns[len(first) :]
    users = [index for index, (role, _) in enumerate(later) if role == "user"]
    step = len(later) - (users[-1] + 1 if users else 0)
    return JOIN.join(first), len(users), step
