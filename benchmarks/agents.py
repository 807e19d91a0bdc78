"""What an agent behind the gateway costs beside the same episodes in this process.

    python -m benchmarks.agents                64 episodes of three turns, five rounds of each side
    python -m benchmarks.agents --tokens 64    longer turns
    python -m benchmarks.agents --together 16  as many agents at once as by default

Both sides ask the same messages of the same policy (SmolLM2-135M, greedy, turns of a fixed number
of tokens), in turn: a `Dialogue` here, and `async def solve(row, client)` in a process forked for
each episode, as stages start it. What both sampled must be equal. CPU-seconds count the agents'
processes too; loading and the start of their host are not counted.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from assay.agents.gateway import Agent
from assay.agents.task import AgentEpisode
from assay.data.episode import Ended
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, Row
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import Environment, Played, run_episodes
from assay.rollout.policies.language import LanguagePolicy
from assay.tasks.rendered_dialogue import RenderedDialogue
from assay.tasks.task import Asked
from assay.tasks.user_code import function_in, place_of
from benchmarks.driver import parser_of, say
from benchmarks.models import model_folder
from benchmarks.results import machine, save_result

SUBJECT = "agents"
NEXT = "Go on from there, with one more example."
TURNS = 3
AGENT = f"""
async def solve(row, client):
    messages = [{{"role": "user", "content": row.messages[0].content}}]
    for turn in range({TURNS}):
        answer = await client.chat.completions.create(model="policy", messages=messages)
        text = answer.choices[0].message.content
        messages += [{{"role": "assistant", "content": text}},
                     {{"role": "user", "content": {NEXT!r}}}]
    return 1.0
"""
Make = Callable[[Row], Environment]


@dataclass
class InProcess:
    """The agent's conversation as a `Dialogue`."""

    row: Row
    messages: tuple[Message, ...] = ()

    def asks(self) -> Asked | None:
        """The row's question, then `NEXT`."""
        over = len(self.messages) == 2 * TURNS
        return None if over else Asked((*self.row.messages, *self.messages), ())

    def hears(self, text: str, ended: Ended) -> None:
        """Keep the answer."""
        self.messages += (Message("assistant", text), Message("user", NEXT))


def spent() -> float:
    """CPU-seconds of this process, of its agents' host and of the agents that ended."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            if process.pid != psutil.Process().pid:
                total += times.children_user + times.children_system
    return total


def measured(
    policy: LanguagePolicy, make: Make, rows: Sequence[Row], tokens: int
) -> tuple[list[Played], dict[str, float]]:
    """The episodes of a side, and their CPU-seconds and wall seconds."""
    keys = [SampleKey(1, row.id, 0) for row in rows]
    cpu, wall = spent(), time.perf_counter()
    worlds = [make(row) for row in rows]
    played = run_episodes(policy, worlds, keys, Sampling(0.0, tokens), 8192)
    for world in worlds:
        _ = getattr(world, "reward", None)
    return played, {"cpu_seconds": spent() - cpu, "wall_seconds": time.perf_counter() - wall}


def drawn(played: Sequence[Played]) -> list[list[tuple[int, ...]]]:
    """The sampled tokens of each episode's turns."""
    return [[turn.actions for turn in each.turns] for each in played]


def main() -> None:
    """Measure both sides in turn, and say and write their ratio."""
    parser = parser_of(__doc__)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--together", type=int, default=64, help="agents at once; by default 16")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    precision = choose_precision(device="cpu")
    loaded = load_model(model_folder("smollm2"), precision)
    policy = LanguagePolicy(loaded.model, precision, frozenset())
    renderer = Renderer(loaded.tokenizer, "template")
    rows = [
        Row(f"r{n}", (Message("user", f"Write about the number {n} and its neighbours."),))
        for n in range(asked.episodes)
    ]

    def decode(tokens: Sequence[int]) -> str:
        return str(loaded.tokenizer.decode(list(tokens), skip_special_tokens=False))

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "agent.py").write_text(AGENT)
        function, _ = function_in("path:agent.py:solve", Path(folder))
        agent = Agent({"deadline": 600.0, "function": place_of(function)}, asked.together)
        sides: dict[str, Make] = {
            "dialogue": lambda row: RenderedDialogue(InProcess(row), renderer, decode),
            "agent": lambda row: AgentEpisode(row, agent=agent).in_tokens(renderer, decode),
        }
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        with closing(agent):
            for number in range(-1, asked.rounds):
                answers = {}
                for name, make in sides.items():
                    some = rows if number >= 0 else rows[:2]
                    played, figure = measured(policy, make, some, asked.tokens)
                    answers[name] = drawn(played)
                    if number >= 0:
                        figures[name].append(figure)
                        say(f"{name}: " + ", ".join(f"{k} {v:.2f}" for k, v in figure.items()))
                if answers["agent"] != answers["dialogue"]:
                    raise SystemExit("the two sides did not sample the same tokens")
    ratios = {
        key: statistics.median(
            theirs[key] / ours[key]
            for theirs, ours in zip(figures["agent"], figures["dialogue"], strict=True)
        )
        for key in figures["agent"][0]
    }
    say("agent / dialogue: " + ", ".join(f"{k} {v:.3f}" for k, v in ratios.items()))
    shape = {"episodes": asked.episodes, "turns": TURNS, "tokens": asked.tokens}
    shape |= {"together": asked.together}
    name = f"{asked.episodes}x{TURNS}-{asked.tokens}-{asked.together}"
    record = {"machine": machine(), **shape, "dtype": str(precision.compute), "sides": figures}
    save_result(SUBJECT, name, {**record, "ratios": ratios})


if __name__ == "__main__":
    main()
