"""The task called "chat": any conversations that end with an answer, without a line of Python.

Prompts are the rows' own, answers are imitated as they are, and five rewards compare with what the
row says is right. Evaluations ask rows of a data set; the benchmark `chat/rubric` asks rows of a
file of any model, and a rubric's judge grades the answers.
"""

from collections.abc import Mapping
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.formats.formats import FileLayout, iter_rows
from assay.data.json_files import load_json
from assay.data.row import Row
from assay.errors import InputError
from assay.lab.session.reward_parts import open_rubric
from assay.tasks.rubric import RUBRIC
from assay.tasks.running import WorkerReward
from assay.tasks.task import (
    BaseTask,
    Benchmark,
    BenchmarkMaker,
    BenchmarkOptions,
    RewardFunction,
    answer_text,
)

RIGHT, WRONG, NOT_JSON = "right", "wrong", "not_json"
NO_ANSWER = Reward(None, why="the row has no answer: gold, an assistant message or a column answer")


def text_of(completion: Completion) -> str:
    """The answer of a completion, without what was thought before it."""
    return completion.text.rpartition("</think>")[2].strip()


def verdict(right: bool, why: str = "") -> Reward:
    """1 for a right answer, else 0."""
    return Reward(float(right), {}, why, RIGHT if right else WRONG)


def exact_match(row: Row, completion: Completion) -> Reward:
    """1 where the answer is the reference, character by character."""
    reference = answer_text(row)
    return NO_ANSWER if reference is None else verdict(text_of(completion) == reference.strip())


def contains(row: Row, completion: Completion) -> Reward:
    """1 where the reference stands anywhere in the answer."""
    reference = (answer_text(row) or "").strip()
    return verdict(reference in text_of(completion)) if reference else NO_ANSWER


def json_equal(row: Row, completion: Completion) -> Reward:
    """1 where the whole answer is JSON of the reference's value. Part `json`: whether it is JSON.

    The order of keys and the way of writing do not matter; 1 and 1.0 are equal, 1 and true are not.
    """
    reference = row.gold
    if reference is None or isinstance(reference, str):
        try:
            reference = load_json(answer_text(row) or "")
        except ValueError as error:
            return Reward(None, why=f"the row's answer is not JSON: {error}")
    try:
        value = load_json(text_of(completion))
    except ValueError as error:
        return Reward(0.0, {"json": 0.0}, f"not JSON: {error}", NOT_JSON)
    right = same_value(value, reference)
    return Reward(float(right), {"json": 1.0}, "", RIGHT if right else WRONG)


def same_value(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def regex(pattern: str = "") -> WorkerReward:
    """1 where the pattern, else that of the row, occurs in the answer."""

    def ask(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
        sought = pattern or row.extra.get("pattern")
        if not isinstance(sought, str):
            return Reward(None, why="the row has no column pattern with a text")
        return {"pattern": sought, "text": text_of(completion)}

    return WorkerReward("assay.data.json_schema:search", ask, _read_regex, maker=regex)


def _read_regex(row: Row, completion: Completion, match: bool | str) -> Reward:
    return Reward(None, why=match) if isinstance(match, str) else verdict(match)


def json_schema(schema: str = "") -> WorkerReward:
    """1 where the answer is JSON that fits the schema, else that of the row. Part `json`.

    Raises ValueError for an option that is not JSON.
    """
    own = load_json(schema) if schema else None

    def ask(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
        wanted = row.extra.get("schema") if own is None else own
        try:
            # A column of CSV holds text.
            wanted = load_json(wanted) if isinstance(wanted, str) else wanted
        except ValueError as error:
            return Reward(None, why=f"the row's schema is not JSON: {error}")
        if wanted is None:
            return Reward(None, why="the row has no column schema")
        return {"schema": wanted, "text": text_of(completion)}

    return WorkerReward("assay.data.json_schema:check", ask, _read_schema, maker=json_schema)


def _read_schema(row: Row, completion: Completion, problem: Mapping[str, str]) -> Reward:
    if "schema" in problem:
        return Reward(None, why=f"the schema {problem['schema']}")
    why = problem.get("text", "")
    if why.startswith("is not JSON"):
        return Reward(0.0, {"json": 0.0}, why, NOT_JSON)
    return Reward(float(not why), {"json": 1.0}, why, WRONG if why else RIGHT)


REWARDS: Mapping[str, RewardFunction] = {
    "exact_match": exact_match,
    "contains": contains,
    "json_equal": json_equal,
    "regex": regex(),
    "json_schema": json_schema(),
}


def rubric_benchmark(options: BenchmarkOptions) -> Benchmark:
    """The rows of the file `path`, judged by the rubric of the file `rubric`. Raises InputError."""
    chosen = options.over({"path": "", "format": "messages", "rubric": ""})
    for name in ("path", "rubric"):
        if not chosen[name]:
            fix = 'options = { path = "rows.jsonl", rubric = "quality.toml" }'
            raise InputError("chat/rubric needs a file", field=f"options.{name}", fix=fix)
    rows = iter_rows(options.root / chosen["path"], chosen["format"], FileLayout())
    score = open_rubric(RUBRIC + chosen["rubric"], options.root).reward
    return Benchmark("chat/rubric", tuple(rows), score, "a rubric's judge", options=chosen)


BENCHMARKS: Mapping[str, BenchmarkMaker] = {"chat/rubric": rubric_benchmark}


class ChatTask(BaseTask):
    """Conversations as they are, with rewards for texts, JSON, patterns and schemas."""

    name = "chat"
    rewards = REWARDS
    benchmarks = BENCHMARKS


TASK = ChatTask()
