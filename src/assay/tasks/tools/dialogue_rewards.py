"""Rewards of BFCL's multi-turn dialogues, which read `Completion.messages`.

All replay the dialogue's calls on fresh simulators in a worker. "Checked" turns are those whose
truth has calls; upstream judges no others.

  dialogue_binary       1 if upstream's checker passes the whole dialogue, else 0
  dialogue_per_turn     checked turns before the first one that fails / checked turns, 0 to 1
  dialogue_final_state  1 if every simulator ends with the public state that the truth leaves, and
                        calls were made at all; else 0. Nothing that was said on the way counts

A dialogue that was stopped has failed: upstream calls it `multi_turn:force_terminated`, and the
turn that it was stopped in counts as failed. (As upstream, a dialogue stopped in its last turn is
judged like a finished one.) One whose calls end the simulators earns 0.

The rewards read messages as the parser "strict" does (`call_text`); a benchmark has one of its own.

Parts: `binary`, `per_turn`, `final_state`, the three values; `calls`, executed calls;
`refused`, messages and calls that were not executed. `why` says what was refused and how often:
a reason of `call_text` or of the Hermes parser, or `unknown_function`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.sandbox.limits import Outcome
from assay.tasks.no_verdict import earned
from assay.tasks.running import WorkerReward
from assay.tasks.tools.call_text import Decode, Decoded, decode_message
from assay.tasks.tools.multi_turn import is_multi_turn, truth_messages
from assay.tasks.tools.prompts import call_text
from assay.tasks.tools.rewards import GoldError
from assay.tasks.tools.simulation import JUDGE, ask, functions_of, judging, wheel_folders

INFERENCE_ERROR = "multi_turn:inference_error"


@dataclass(frozen=True, slots=True)
class Heard:
    """What a dialogue comes to: the model's messages decoded, turn by turn."""

    turns: tuple[tuple[Decoded, ...], ...]

    @property
    def calls(self) -> list[list[list[str]]]:
        """Calls as Python by turn and step; as upstream, a step without any is none."""
        return [
            [[call.source for call in step.calls] for step in turn if step.calls]
            for turn in self.turns
        ]

    def refused(self, functions: tuple[str, ...]) -> Counter[str]:
        """Why messages and calls were not executed, and how often."""
        steps = [step for turn in self.turns for step in turn]
        reasons = Counter(step.error for step in steps if step.error not in ("", "no_call"))
        unknown = sum(call.name not in functions for step in steps for call in step.calls)
        return reasons + Counter(unknown_function=unknown)


def heard(messages: tuple[Message, ...], decode: Decode = decode_message) -> Heard:
    """The messages after a row's prompt; a turn begins where the user speaks."""
    turns: list[list[Decoded]] = [[]] if messages else []
    for of_user, run in groupby(messages, lambda message: message.role == "user"):
        if of_user:
            turns.append([])
        else:
            said = [message.content for message in run if message.role == "assistant"]
            turns[-1] += map(decode, said)
    return Heard(tuple(map(tuple, turns)))


def _ask(decode: Decode, row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    if not is_multi_turn(row):
        raise GoldError(f"row {row.id} has no simulators", fix="use a reward of single answers")
    return judging(row, heard(completion.messages, decode).calls)


def _read(
    name: str, decode: Decode, row: Row, completion: Completion, value: Mapping[str, Any]
) -> Reward:
    said = heard(completion.messages, decode)
    refused = said.refused(functions_of(row))
    calls = sum(len(step) for turn in said.calls for step in turn)
    parts = {
        "binary": float(value["valid"]),
        "per_turn": value["passed"] / value["checked"] if value["checked"] else 1.0,
        "final_state": float(value["final_state"] and calls > 0),
        "calls": float(calls),
        "refused": float(refused.total()),
    }
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items()))
    return Reward(parts[name], parts, f"refused: {reasons}" if reasons else "")


def dialogue_error(row: Row, completion: Completion, decode: Decode = decode_message) -> str:
    """Upstream's type of what is wrong with a dialogue; "" when nothing is.

    Raises SimulatorFailure.
    """
    said = heard(completion.messages, decode)
    if not said.turns:
        return INFERENCE_ERROR
    return ask(JUDGE, judging(row, said.calls))["error_type"]


def _failed(row: Row, completion: Completion, failure: Outcome) -> Reward:
    """0 for a dialogue whose calls end the simulators."""
    parts = {"binary": 0.0, "per_turn": 0.0, "final_state": 0.0}
    return earned(0.0, parts, failure)


def truth_completion(row: Row) -> Completion:
    """A dialogue that makes the calls of the truth, turn by turn."""
    said: list[Message] = []
    for message in truth_messages(row):
        calls = message.tool_calls
        said.append(replace(message, content=call_text(calls) or message.content, tool_calls=()))
        said += [] if calls else [Message("user", "")]
    return Completion("", messages=tuple(said[:-1]))


def dialogue_reward(name: str, decode: Decode = decode_message) -> WorkerReward:
    """The reward whose value is the part `name`."""
    return WorkerReward(
        JUDGE,
        partial(_ask, decode),
        partial(_read, name, decode),
        folders=wheel_folders,
        failed=_failed,
        gold=truth_completion,
    )


DIALOGUE_REWARDS = {
    f"dialogue_{name}": dialogue_reward(name) for name in ("binary", "per_turn", "final_state")
}
