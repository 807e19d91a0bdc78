"""The task of `time_to_reward`: rows, prompts, the reward, and held-out questions.

Read by the driver and by Assay's worker, both in Assay's own environment. Trains nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from assay.data.episode import Completion
from assay.data.files import cache_root
from assay.data.row import Row
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.toml_write import experiment_toml
from assay.lab.monitor.observer import Silent
from assay.lab.run.launch import launch_or_resume
from assay.lab.setup.prepare import make_renderer
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import StageInput, decoder, reward_of, sampling_of
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.run_directory import create_run
from assay.tasks.running import RewardRunner
from assay.train.sampled_groups import visits

HERE = Path(__file__).parent


def lab() -> Path:
    """The lab that the start is trained in, once."""
    root = cache_root() / "benchmarks" / "time_to_reward"
    root.mkdir(parents=True, exist_ok=True)
    return root


def train_start() -> None:
    """Train the checkpoint that both sides start from, unless it is there."""
    launch_or_resume(HERE / "reward_start.toml", (), root=lab(), observer=Silent())


@dataclass(frozen=True)
class RewardTask:
    """The experiment of `reward_grpo.toml`, its parts made when they are asked for."""

    session: Session

    @property
    def stage(self) -> GrpoStage:
        """The GRPO stage."""
        stage = self.session.experiment.stage["grpo"]
        assert isinstance(stage, GrpoStage)
        return stage

    @cached_property
    def runner(self) -> RewardRunner:
        """Judges completions."""
        return self.session.reward_runner(reward_of(self.session.task, self.stage.reward))

    @cached_property
    def given(self) -> StageInput:
        """What the method is built from."""
        base = self.session.base
        return StageInput(
            task=self.session.task,
            rows=self.session.sets["train"].train,
            renderer=make_renderer(base.tokenizer, self.stage.rendering),
            seed=self.session.seed,
            runner=self.runner,
            end_tokens=base.end_tokens,
        )

    @property
    def held_out(self) -> tuple[Row, ...]:
        """Rows that nobody trains on."""
        return self.session.sets["held_out"].train

    def prompt(self, row: Row) -> tuple[int, ...]:
        """The rendered prompt."""
        return self.given.renderer.prompt(self.given.task.prompt(row), row.tools)

    def rows_in_order(self, steps: int) -> list[Row]:
        """The rows that the steps train on, as Assay's order has them."""
        count = steps * self.stage.prompts
        return [row for _, row in visits(self.given.rows, self.given.seed, 0, count)]

    def judge(self, rows: Sequence[Row], completions: Sequence[Sequence[int]]) -> list[float]:
        """The reward of each completion's tokens; RuntimeError where one abstains."""
        decode = decoder(self.given)
        pairs = zip(rows, completions, strict=True)
        found = self.runner.score([(row, Completion(decode(c), tuple(c))) for row, c in pairs])
        silent = [reward.why for reward in found if reward.value is None]
        if silent:
            raise RuntimeError(f"{len(silent)} rewards abstained: {silent[0]}")
        return [reward.value for reward in found if reward.value is not None]

    def held_out_reward(self, policy: LanguagePolicy) -> float:
        """Mean reward of greedy answers to the held-out rows."""
        greedy = Sampling(0.0, sampling_of(self.stage).max_tokens)
        rows = self.held_out
        keys = [SampleKey(0, row.id, 0) for row in rows]
        turns = policy.sample([self.prompt(row) for row in rows], keys, greedy)
        rewards = self.judge(rows, [turn.actions for turn in turns])
        return sum(rewards) / len(rewards)


def reward_task() -> RewardTask:
    """The task, its run a folder of the lab that holds nothing else."""
    experiment = read_experiment(HERE / "reward_grpo.toml")
    seed = experiment.seeds[0]
    text = experiment_toml(experiment)
    run = create_run(lab(), experiment.name, seed=seed, spec=text, new=True)
    return RewardTask(Session(experiment, run, seed, Silent()))
