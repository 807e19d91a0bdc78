"""How much faster the demos task judges selections than `generate` does.

    python -m benchmarks.selections

40 queries with 8 pairs of demonstrations each, as a beam search asks for: the pairs of a query
share the demonstration that stands first. SmolLM2-135M is asked three times, in turn: for the
probability of the right answer (what InfoScore is made of), for its greedy answer (what accuracy
is made of), and for the same greedy answer by Transformers' `generate`, one prompt after the other.
One thread, bf16 on all sides, nothing remembered. The result lies in
`benchmarks/results/selections`.
"""

import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM

from assay.data.row import Row
from assay.lab.models.local_helper import LocalHelper, load_weights
from assay.lab.models.metering import MeteredModel
from assay.labs.demos.demonstrations import POOL, conversation
from assay.labs.demos.outcomes import GREEDY, Selection, ask, probabilities, target_of
from assay.models.precision import choose_precision
from assay.rl.policy import Sampling
from assay.tasks.helper_model import HelperModel
from assay.tasks.task import BenchmarkOptions
from assay.tasks.user_code import load_file
from benchmarks.driver import ROOT
from benchmarks.models import model_folder
from benchmarks.results import machine, save_result
from benchmarks.worker import Record

QUERIES, PAIRS, ROUNDS = 40, 8, 1
MODEL = "smollm2"


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """CPU-seconds and wall-seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def pairs_of(row: Row) -> list[Selection]:
    """The first candidate of the pool behind each of the next ones."""
    first, *others = row.extra[POOL]
    return [(row, (other, first)) for other in others[:PAIRS]]


class Forgetful:
    """A helper model under an identity of its own, of which nothing is remembered."""

    def __init__(self, helper: HelperModel):
        self.helper = helper
        self.identity = uuid.uuid4().hex

    def __getattr__(self, name: str) -> Any:
        return getattr(self.helper, name)


def measured() -> Record:
    """CPU-seconds and wall-seconds of all sides, round by round."""
    folder = model_folder(MODEL)
    precision = replace(choose_precision(), compute=torch.bfloat16)
    weights = load_weights(folder, precision, "completion")
    subjects = load_file("experiments/demos/subjects.py", ROOT).module
    rows = subjects.read_subjects("test", BenchmarkOptions({"shots": 2})).rows[:QUERIES]
    selections = [selection for row in rows for selection in pairs_of(row)]
    targets = [target_of(row) for row, _ in selections]
    prompts = [weights.renderer.prompt(conversation(*selection)) for selection in selections]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    ends = newline_tokens(weights.renderer.tokenizer)
    rounds: list[dict[str, float]] = []
    ours: list[str] = []
    theirs: list[str] = []

    def scored() -> None:
        probabilities(cast(HelperModel, Forgetful(helper)), selections, targets)

    def answered() -> None:
        found = ask(cast(HelperModel, Forgetful(helper)), selections)
        ours[:] = [each.generation.strip() for each in found]

    def generated() -> None:
        theirs[:] = [one_answer(model, prompt, ends, weights.renderer) for prompt in prompts]

    for _ in range(ROUNDS):
        helper = MeteredModel("frozen", LocalHelper("frozen", weights), Sampling(0.0))
        taken = [time for work in (scored, answered, generated) for time in seconds(work)]
        rounds.append(dict(zip(KEYS, taken, strict=True)))
        print(rounds[-1], flush=True)
    return {
        "rounds": rounds,
        "prompts": len(prompts),
        "tokens": sum(map(len, prompts)),
        "answers_alike": sum(a == b for a, b in zip(ours, theirs, strict=True)),
        "probabilities_cpu": middle(rounds, "generate_cpu", "probabilities_cpu"),
        "answers_cpu": middle(rounds, "generate_cpu", "answers_cpu"),
        "probabilities_wall": middle(rounds, "generate_wall", "probabilities_wall"),
        "answers_wall": middle(rounds, "generate_wall", "answers_wall"),
    }


SIDES = ("probabilities", "answers", "generate")
KEYS = tuple(f"{side}_{clock}" for side in SIDES for clock in ("cpu", "wall"))


def middle(rounds: Sequence[dict[str, float]], theirs: str, ours: str) -> float:
    """The median over rounds of their cost over ours."""
    return statistics.median(each[theirs] / each[ours] for each in rounds)


def newline_tokens(tokenizer: object) -> list[int]:
    """The tokens whose text has a line end, at which an answer is over."""
    words = range(len(tokenizer))  # type: ignore[arg-type]
    return [word for word in words if "\n" in tokenizer.decode([word])]  # type: ignore[attr-defined]


def one_answer(model: object, prompt: Sequence[int], ends: list[int], renderer: object) -> str:
    """The answer of `generate` to one prompt."""
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        out = model.generate(  # type: ignore[attr-defined]
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=GREEDY.max_tokens,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
    text = renderer.tokenizer.decode(out[0, len(prompt) :])  # type: ignore[attr-defined]
    return text.split("\n")[0].strip()


if __name__ == "__main__":
    torch.set_num_threads(1)
    result = {"machine": machine(), **measured()}
    print({key: value for key, value in result.items() if key != "rounds"})
    print(save_result("selections", "scoring", result))
