"""BFCL's multi-turn dialogue with one entry, as upstream plays it.

A turn begins with the user's message. Then, step by step: the model writes, its calls are executed
and each result is a tool message; a message without calls, or one that cannot be decoded, ends the
turn. After more steps of one turn than the row's `step_limit`, upstream's 20 without one, the
episode is over, as it is after calls that end the simulators (`CallsFailed`), and is judged so.
Functions that the entry withheld are offered from their turn on, whose message is upstream's: added
to the tools, as its handlers of hosted models do (inference_multi_turn_FC), or written into that
message, as its handlers of local models do, Qwen3's among them (inference_multi_turn_prompting).
Source: bfcl_eval/model_handler/base_handler.py. Upstream drops text beside calls from the history;
here the model's messages stay as it wrote them.

Judging is not here (`dialogue_rewards`), rendering neither.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from assay.data.episode import Completion, Ended
from assay.data.row import Message, Row
from assay.tasks.dialogue import Asked, Dialogue
from assay.tasks.tools.call_text import decode_message
from assay.tasks.tools.multi_turn import messages_of
from assay.tasks.tools.simulation import CallsFailed, run_calls

STEP_LIMIT = 20
CALLS_FAILED = "Error during execution"
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"

Added = Literal["tools", "text"]
"""Where functions are offered that a turn adds."""
ADDED: Mapping[str, Added] = {"tools": "tools", "text": "text"}

Execute = Callable[[Row, Sequence[str], Sequence[str]], list[str]]
"""Results of calls in a row's entry, after the calls that were made before."""


class MultiTurnDialogue:
    """One episode with a row that `multi_turn.is_multi_turn`; see `assay.tasks.dialogue`."""

    def __init__(self, row: Row, execute: Execute = run_calls, added: Added = "tools"):
        self._row, self._execute, self._added = row, execute, added
        self._tools = row.tools
        self._said: list[Message] = []
        self._done: list[str] = []
        self._turn, self._steps = 0, 0
        self._over = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `Dialogue.messages`."""
        return tuple(self._said)

    def asks(self) -> Asked | None:
        """See `Dialogue.asks`."""
        return None if self._over else Asked((*self._row.prompt, *self._said), self._tools)

    def hears(self, text: str, ended: Ended = "stop") -> None:
        """See `Dialogue.hears`. Raises SimulatorFailure where that was not the calls' doing."""
        self._said.append(Message("assistant", text))
        calls = [call.source for call in decode_message(text).calls]
        if not calls:
            self._next_turn()
            return
        try:
            results = self._execute(self._row, self._done, calls)
        except CallsFailed as failed:
            self._said.append(Message("tool", f"{CALLS_FAILED}: {failed}"))
            self._over = True
            return
        self._said += [Message("tool", result) for result in results]
        self._done += calls
        self._steps += 1
        self._over = self._steps > self._row.extra.get("step_limit", STEP_LIMIT)

    def _next_turn(self) -> None:
        entry = self._row.extra["entry"]
        self._turn, self._steps = self._turn + 1, 0
        self._over = self._turn == len(entry["question"])
        if self._over:
            return
        key = str(self._turn)
        if key in entry.get("missed_function", {}):
            self._offer(entry["missed_function"][key])
        else:
            self._said += messages_of(entry["question"][self._turn])

    def _offer(self, docs: list[dict[str, Any]]) -> None:
        if self._added == "tools":
            self._tools = (*self._tools, *docs)
            self._said.append(Message("user", MORE_FUNCTIONS))
        else:
            self._said.append(Message("user", f"{docs}\n{MORE_FUNCTIONS}"))


def play(dialogue: Dialogue, answers: Iterable[str]) -> Completion:
    """The dialogue with a policy that says `answers` one after the other, then nothing."""
    written, coming = [], iter(answers)
    while dialogue.asks() is not None:
        written.append(next(coming, ""))
        dialogue.hears(written[-1], "stop")
    return Completion("\n".join(written), messages=dialogue.messages)
