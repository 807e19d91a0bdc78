"""The tool-calling skill: answer a question by calling functions that the prompt describes.

Its parts are put together here and live beside this file: data (`single_turn`), words (`prompts`),
reading answers (`parsing`), judging them (`rewards`, `relevance`, `checker`) and `benchmarks`; for
entries of several turns data (`multi_turn`), `dialogue` and `dialogue_rewards`, with simulators
that live in workers (`simulation`).
"""

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.dialogue import Dialogue
from assay.tasks.tools.benchmarks import BENCHMARKS
from assay.tasks.tools.bfcl_dialogue import MultiTurnDialogue
from assay.tasks.tools.dialogue_rewards import DIALOGUE_REWARDS
from assay.tasks.tools.generated_calls import read_generated_calls, read_held_out_calls
from assay.tasks.tools.multi_turn import first_turn, is_multi_turn
from assay.tasks.tools.prompts import prompt
from assay.tasks.tools.relevance import relevance
from assay.tasks.tools.rewards import REWARD_MAXIMUM, REWARDS
from assay.tasks.tools.simulated import read_held_out, read_simulated
from assay.tasks.tools.single_turn import read_bfcl, read_single


class NoTargetError(InputError):
    """A row has no answer to train on."""


class ToolsTask:
    """The task called "tools"."""

    name = "tools"
    rewards = {**REWARDS, "relevance": relevance, **DIALOGUE_REWARDS}  # noqa: RUF012
    reward_maximum = REWARD_MAXIMUM
    benchmarks = BENCHMARKS
    sources = {  # noqa: RUF012
        "bfcl": read_bfcl,
        "bfcl_single": read_single,
        "generated_calls": read_generated_calls,
        "generated_calls_held_out": read_held_out_calls,
        "simulated": read_simulated,
        "simulated_held_out": read_held_out,
    }

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The row's messages before its target; the rendering adds the tools (`prompts.prompt`)."""
        return prompt(row)

    def target(self, row: Row) -> Message:
        """The assistant message that the row ends with. Raises NoTargetError without one."""
        if not row.messages or row.messages[-1].role != "assistant":
            why = row.extra.get("no_target", "it ends with no assistant message")
            raise NoTargetError(f"row {row.id} has no target: {why}", file=row.origin or None)
        return row.messages[-1]

    def dialogue(self, row: Row) -> Dialogue | None:
        """The dialogue with an entry that has simulators; None where one answer is all."""
        return MultiTurnDialogue(first_turn(row)) if is_multi_turn(row) else None


TASK = ToolsTask()
