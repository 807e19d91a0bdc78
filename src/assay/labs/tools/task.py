"""The tool-calling skill: answer a question by calling functions that the prompt describes.

The task and its benchmarks: every BFCL category, each entry an item, scored by BFCL's own rule.

The option `parser` says what is read as calls (`parsing`). In the categories of several turns
`added` says where functions are offered that a turn adds, "tools" or "text" (see `multi_turn`).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from assay.data.row import Message, Row
from assay.errors import InputError, look_up
from assay.labs.tools.multi_turn import (
    ADDED,
    DIALOGUE_REWARDS,
    MULTI_TURN,
    MultiTurnDialogue,
    dialogue_error,
    dialogue_reward,
    first_turn,
    is_multi_turn,
    multi_turn_entries,
    truth_messages,
)
from assay.labs.tools.parsing import DECODERS, PARSERS
from assay.labs.tools.rewards import (
    CHECKER,
    MULTI_TURN_CHECKER,
    RELEVANCE,
    RELEVANCE_CHECKER,
    REWARD_MAXIMUM,
    REWARDS,
    ast,
    ast_error,
    relevance,
    relevance_error,
)
from assay.labs.tools.single_turn import (
    CATEGORIES,
    entries,
    read_bfcl,
)
from assay.tasks.task import BaseTask, Benchmark, BenchmarkMaker, BenchmarkOptions, Dialogue, moved

DEFAULTS = {"parser": "bfcl"}
MULTI_TURN_DEFAULTS = {"parser": "bfcl", "added": "tools"}


def bfcl(category: str, options: BenchmarkOptions) -> Benchmark:
    """The benchmark of one category with one question.

    Raises InputError for an unknown option, parser or category.
    """
    chosen = options.over(DEFAULTS)
    parse = look_up(PARSERS, chosen["parser"], "parser")
    score, classify, checker = ast, ast_error, CHECKER
    if category in RELEVANCE:
        score, classify, checker = relevance, relevance_error, RELEVANCE_CHECKER
    return Benchmark(
        name=f"bfcl/{category}",
        items=entries(category),
        score=partial(score, parse=parse),
        checker=f"{checker}, parser {chosen['parser']}",
        classify=partial(classify, parse=parse),
        options=chosen,
    )


def multi_turn(category: str, options: BenchmarkOptions) -> Benchmark:
    """The benchmark of one category of several turns.

    Raises InputError for an unknown option or value.
    """
    chosen = options.over(MULTI_TURN_DEFAULTS)
    added = look_up(ADDED, chosen["added"], "place of added functions")
    decode = look_up(DECODERS, chosen["parser"], "parser")
    return Benchmark(
        name=f"bfcl/{category}",
        items=multi_turn_entries(category),
        score=dialogue_reward("binary", decode),
        checker=f"{MULTI_TURN_CHECKER}, parser {chosen['parser']}",
        classify=partial(dialogue_error, decode=decode),
        options=chosen,
        dialogue=partial(MultiTurnDialogue, added=added, decode=decode),
    )


SINGLE = (*CATEGORIES, *RELEVANCE)
BENCHMARKS: Mapping[str, BenchmarkMaker] = {
    **{f"bfcl/{category}": partial(bfcl, category) for category in SINGLE},
    **{f"bfcl/{category}": partial(multi_turn, category) for category in MULTI_TURN},
}


class ToolsTask(BaseTask):
    """The task called "tools"."""

    name = "tools"
    rewards = {  # noqa: RUF012
        **REWARDS,
        "relevance": relevance,
        **DIALOGUE_REWARDS,
    }
    moved_rewards = {  # noqa: RUF012
        f"{name}_as_reported": f"path:experiments/tools/reported_rewards.py:{name}"
        for name in ("fine_grained", "strict_binary", "strict_binary_think")
    }
    reward_maximum = REWARD_MAXIMUM
    benchmarks = BENCHMARKS
    sources = {  # noqa: RUF012
        "bfcl": read_bfcl,
        **dict.fromkeys(
            ("generated_calls", "generated_calls_held_out", "simulated", "simulated_held_out"),
            moved("experiments/tools/generated_rows.py"),
        ),
    }

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The row's messages before its target; the rendering adds the tools ."""
        return row.prompt

    def target(self, row: Row) -> Message:
        """The assistant message that the row ends with. Raises InputError without one."""
        if not row.messages or row.messages[-1].role != "assistant":
            why = row.extra.get("no_target", "it ends with no assistant message")
            raise InputError(f"row {row.id} has no target: {why}", file=row.origin or None)
        return row.messages[-1]

    def right_answer(self, row: Row) -> Message:
        """The target; of an entry of several turns the first step of a dialogue that is right.

        Raises InputError without one.
        """
        for message in self.right_messages(row):
            return replace(message, tool_calls=message.tool_calls[:1])
        return self.target(row)

    def right_messages(self, row: Row) -> list[Message]:
        """What the assistant says in the dialogue that an entry's ground truth is; none for a row
        that holds its conversation itself, or is one question."""
        bare = is_multi_turn(row) and row.messages[-1].role != "assistant"
        return truth_messages(row) if bare else []

    def dialogue(self, row: Row) -> Dialogue | None:
        """The dialogue with an entry that has simulators; None where one answer is all."""
        return MultiTurnDialogue(first_turn(row)) if is_multi_turn(row) else None


TASK = ToolsTask()
