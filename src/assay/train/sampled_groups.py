"""Samples completions for the next prompts of a step, and judges them.

`Source.sample` and `judge` share nothing but `Sampled`, so they may overlap or run in other
processes. The next rows are a pure function of seed and position, not of a running generator, so a
resumed run continues at the same row. Used by every method that learns from its own samples; the
method makes batches of the judged groups.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Protocol

from assay.data.episode import Completion, Context, Ended, Episode, Reward, Turn, continues
from assay.data.row import Row
from assay.data.splits import RowOrder, visits
from assay.errors import RunFailure
from assay.models.lora import begin_masks
from assay.rl.policy import Policy, SampleKey, Sampling
from assay.rollout.episodes import Environment, Played, Samples, run_episodes, telling
from assay.train.checkpoint import Journal, Journalled, Place, SampleRecord, Score
from assay.train.update import Schedule

Job = tuple[Row, int]
"""A row and the index of the completion among all of this row's in the stage."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A completion that is not judged yet."""

    row: Row
    completion: Completion
    """What is judged."""
    episode: Episode
    """Without a reward, unless there is nothing to judge: then an abstention says why."""


FAILED = "environment: "
"""How the reason of an abstention begins where a world failed."""


def journalled(
    recorded: Mapping[str, Journalled], name: str, turns: Sequence[Turn]
) -> Reward | None:
    """The reward that was journalled for a completion, if that had the same tokens.

    Another machine may sample another text, which the old reward was not given for.
    """
    known = recorded.get(name)
    if known is None or known.tokens != laid_out(turns):
        return None
    return known.reward


def laid_out(turns: Sequence[Turn]) -> tuple[int, ...]:
    """The actions of several turns end to end."""
    return tuple(action for turn in turns for action in turn.actions)


def judge(
    score: Score, sampled: Sequence[Sampled], recorded: Mapping[str, Journalled], step: int = 0
) -> list[Episode]:
    """The sampled episodes with their rewards, in order.

    A reward in `recorded` is kept where it was given for the same tokens; all others are scored in
    one call. `step` is the step that they are sampled for.
    """
    known = [
        journalled(recorded, one.episode.id, one.episode.turns) or one.episode.reward
        for one in sampled
    ]
    fresh = [one for one, reward in zip(sampled, known, strict=True) if reward is None]
    named = [replace(one.completion, id=f"{step}/{one.episode.id}") for one in fresh]
    rewards = iter(score([(one.row, c) for one, c in zip(fresh, named, strict=True)]))
    return [
        replace(one.episode, reward=reward or next(rewards))
        for one, reward in zip(sampled, known, strict=True)
    ]


@dataclass(frozen=True)
class SingleTurn:
    """One prompt, one completion."""

    contexts: Mapping[str, Context]
    """By row id."""
    sampling: Sampling
    seed: int
    score: Score
    decode: Callable[[Sequence[int]], str]
    """Actions to text, without the end token."""
    temperature: Schedule | None = None
    """In place of the sampling settings' own."""

    def sample(self, policy: Samples, jobs: Sequence[Job], step: int = 0) -> list[Sampled]:
        """One completion per job, in order, with the settings of this step."""
        turns = policy.sample(
            [self.contexts[row.id] for row, _ in jobs],
            [SampleKey(self.seed, row.id, sample) for row, sample in jobs],
            at_step(self.sampling, self.temperature, step),
        )
        return [
            Sampled(
                job[0],
                Completion(self.decode(turn.actions), turn.actions, turn.ended),
                Episode(f"{job[0].id}#{job[1]}", job[0].id, (turn,)),
            )
            for job, turn in zip(jobs, turns, strict=True)
        ]


class Conversation(Environment, Protocol):
    """An environment whose episode can be judged as a conversation."""

    def completion(self, ended: Ended) -> Completion:
        """All messages, and how the episode ended."""
        ...


@dataclass(frozen=True)
class MultiTurn:
    """Episodes against environments, judged by their conversations.

    Where an environment fails, the reward is an abstention that says why.
    """

    environment: Callable[[Row], Conversation]
    sampling: Sampling
    seed: int
    score: Score
    positions: int | None = None
    """Tokens that context and turn may have together."""
    temperature: Schedule | None = None
    """In place of the sampling settings' own."""

    def sample(self, policy: Samples, jobs: Sequence[Job], step: int = 0) -> list[Sampled]:
        """One completion per job, in order, with the settings of this step."""
        worlds = [self.environment(row) for row, _ in jobs]
        keys = [SampleKey(self.seed, row.id, sample) for row, sample in jobs]
        sampling = at_step(self.sampling, self.temperature, step)
        played = run_episodes(policy, worlds, keys, sampling, self.positions)
        completions = [world.completion(p.ended) for world, p in zip(worlds, played, strict=True)]
        return [
            Sampled(row, c, Episode(f"{row.id}#{n}", row.id, p.turns, failed(p, c.earned), c))
            for (row, n), p, c in zip(jobs, played, completions, strict=True)
        ]


Source = SingleTurn | MultiTurn
"""How completions of a stage are sampled, and what judges them."""


def at_step(sampling: Sampling, temperature: Schedule | None, step: int) -> Sampling:
    """The sampling settings of a step."""
    if temperature is None:
        return sampling
    return replace(sampling, temperature=temperature.at(step))


def failed(played: Played, earned: Reward | None = None) -> Reward | None:
    """The abstention of an episode that is no evidence about the policy; None of any other. An
    agent that took no turn says why in what it `earned`."""
    if played.failure:
        return Reward(None, why=FAILED + played.failure)
    if not played.turns and (earned is None or earned.value is not None):
        return Reward(None, why=f"no turn was taken: {NO_TURN.get(played.ended, played.ended)}")
    return None if played.turns else earned


NO_TURN = {
    "context": "the prompt leaves no room in the model's positions",
    "stored": "the environment asked for nothing",
}
"""Why an episode may have no turns, by how it ended."""


@dataclass(frozen=True)
class PromptStream:
    """The stream of prompts of a stage and how many completions each gets."""

    rows: tuple[Row, ...]
    source: Source
    prompts: int
    group: int
    seed: int
    max_abstained_share: float = 0.1
    order: RowOrder | None = None
    """None: the rows are shuffled anew each epoch."""

    def next(self, policy: Policy, place: Place, journal: Journal) -> list[list[Episode]]:
        """The `prompts` groups of judged episodes that begin at `place`, in order; the masks of a
        policy with dropout are set to the step's.

        Raises RunFailure where more than `max_abstained_share` of the rewards abstained.
        """
        return self.groups_of(self.jobs(place.cursor), policy, place, journal)

    def groups_of(
        self, jobs: Sequence[Job], policy: Policy, place: Place, journal: Journal
    ) -> list[list[Episode]]:
        """The groups of whole groups of `jobs`; see `next`."""
        with telling(lambda done: journal.inside("sampled", done, len(jobs))):
            sampled = self.source.sample(policy, jobs, place.step) if jobs else []
        step = place.step + 1
        episodes = judge(self.source.score, sampled, journal.recorded_rewards(step), step)
        reasons = [e.reward.why for e in episodes if e.reward and e.reward.value is None]
        if len(reasons) > self.max_abstained_share * len(episodes):
            common = max(set(reasons), key=reasons.count)
            raise RunFailure(
                f"step {step}: {len(reasons)} of {len(episodes)} rewards abstained, more than "
                f"{self.max_abstained_share:.0%}; most often: {common}"
            )
        begin_masks(policy.module, self.seed, place.step)
        visited = [
            replace(e, visit=sample // self.group)
            for e, (_, sample) in zip(episodes, jobs, strict=True)
        ]
        return [visited[i : i + self.group] for i in range(0, len(visited), self.group)]

    def jobs(self, cursor: int) -> list[Job]:
        """The completions of the `prompts` rows from position `cursor` of the shuffled stream."""
        return [
            (row, visit * self.group + member)
            for visit, row in visits(self.rows, self.seed, cursor, self.prompts, self.order)
            for member in range(self.group)
        ]


def value_of(episode: Episode) -> float | None:
    """The reward's value; None for an abstention."""
    return episode.reward.value if episode.reward else None


def sample_records(
    episodes: Sequence[Episode],
    advantages: Mapping[str, float],
    decode: Callable[[Sequence[int]], str],
) -> list[SampleRecord]:
    """Records of episodes, several turns laid end to end; the advantage is 0 where not given."""
    records = []
    for episode in episodes:
        row_id, _, sample = episode.id.rpartition("#")
        tokens = laid_out(episode.turns)
        logps = tuple(x for turn in episode.turns for x in turn.behaviour_logps or ())
        entropies = tuple(x for turn in episode.turns for x in turn.entropies or ())
        variances = tuple(x for turn in episode.turns for x in turn.variances or ())
        ended = episode.turns[-1].ended if episode.turns else "stop"
        records.append(
            SampleRecord(
                row_id=row_id,
                visit=episode.visit,
                sample=int(sample),
                text="\n".join(decode(turn.actions) for turn in episode.turns),
                tokens=tokens,
                behaviour_logps=logps,
                reward=episode.reward or Reward(None, why="not judged"),
                advantage=advantages.get(episode.id, 0.0),
                ended=episode.completion.ended if episode.completion else ended,
                prompt=None
                if episode.completion or not episode.turns
                else episode.turns[0].context,
                completion=episode.completion,
                turns=episode.turns if episode.completion else (),
                entropies=entropies if len(entropies) == len(tokens) else (),
                variances=variances if len(variances) == len(tokens) else (),
            )
        )
    return records


def sampling_metrics(groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
    """Rewards, parts, lengths, truncation, repetition and abstentions over all completions; of
    stored groups that nothing is left of, how many there are."""
    episodes = [episode for group in groups for episode in group]
    if not episodes:
        return {"rows": float(len(groups))}
    values = [v for e in episodes if (v := value_of(e)) is not None]
    lengths = [sum(len(turn.actions) for turn in e.turns) for e in episodes]
    mean = sum(values) / len(values) if values else 0.0
    variance = sum((v - mean) ** 2 for v in values) / len(values) if values else 0.0
    parts: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in (episode.reward.parts if episode.reward else {}).items():
            parts.setdefault(f"part/{name}", []).append(value)
    contexts = {turn.context for e in episodes for turn in e.turns}
    return {
        "rows": float(len(groups)),
        "reward_mean": mean,
        "reward_std": variance**0.5,
        "length_mean": sum(lengths) / len(lengths),
        "truncated_share": share(is_truncated(e) for e in episodes if e.turns or e.completion),
        "abstained_share": share(value_of(e) is None for e in episodes),
        "repeated_share": repeated_share(groups),
        "completions": float(len(episodes)),
        "completion_tokens": float(sum(lengths)),
        "prompt_tokens": float(sum(len(c) for c in contexts if isinstance(c, Sized))),
        **conversation_metrics(episodes),
        **{name: sum(numbers) / len(numbers) for name, numbers in parts.items()},
    }


def conversation_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Of episodes of several turns, means per episode: turns of the user, steps (messages of the
    model) and tool results; the shares whose environment failed, and whose context was full.
    """
    completions = [e.completion for e in episodes if e.completion is not None]
    if not completions:
        return {}
    roles = [[message.role for message in each.messages] for each in completions]
    return {
        "turns_mean": 1 + sum(names.count("user") for names in roles) / len(completions),
        "steps_mean": sum(len(e.turns) for e in episodes) / len(completions),
        "tool_results_mean": sum(names.count("tool") for names in roles) / len(completions),
        "failed_share": share(
            e.reward is not None and e.reward.why.startswith(FAILED) for e in episodes
        ),
        "rendered_anew_share": share(anew for e in episodes for anew in rendered_anew(e.turns)),
        "no_room_share": share(each.ended == "context" for each in completions),
    }


def rendered_anew(turns: Sequence[Turn]) -> Iterator[bool]:
    """For each turn but the first, whether its context goes on from no other turn of the episode:
    a template, or an agent, has changed what the model wrote."""
    for turn in turns[1:]:
        yield not any(continues(turn.context, each.context, each.actions) for each in turns)


def is_truncated(episode: Episode) -> bool:
    """Whether the model, or the room for its context, was cut short."""
    ended = [turn.ended for turn in episode.turns]
    if episode.completion is not None:
        return episode.completion.ended == "context" or "length" in ended
    return ended[-1] == "length"


def repeated_share(groups: Sequence[Sequence[Episode]]) -> float:
    """The share of completions that are, token by token, an earlier one of their group."""
    different = sum(len({tuple(t.actions for t in e.turns) for e in group}) for group in groups)
    return 1 - different / sum(map(len, groups))


def share(flags: Iterable[bool]) -> float:
    """The share of true flags; 0 of none."""
    marks = list(flags)
    return sum(marks) / len(marks) if marks else 0.0


@dataclass(frozen=True)
class StoredGroups:
    """Candidates collected earlier, each group with its rewards.

    A group that nothing is left of keeps its place in the stream, so that an epoch stays one.
    """

    groups: tuple[tuple[Episode, ...], ...]
    prompts: int
    """Groups of one step."""
    seed: int
    order: RowOrder | None = None
    """None: the groups are shuffled anew each epoch."""
    best: tuple[int, ...] = ()
    """See `best_of`."""

    def next(self, policy: Policy, place: Place, journal: Journal) -> list[list[Episode]]:
        """The `prompts` groups from position `place.cursor` of the stream."""
        begin_masks(policy.module, self.seed, place.step)
        chosen = visits(self.groups, self.seed, place.cursor, self.prompts, self.order)
        return [
            [replace(e, visit=visit) for e in best_of(group, self.best, visit)]
            for visit, group in chosen
        ]


def best_of(group: Sequence[Episode], best: Sequence[int], visit: int) -> list[Episode]:
    """The `best[visit]` members of the highest reward, in the group's order; the last number holds
    for later visits, no number for all members. Of equal rewards the first is better; abstentions
    are no members.
    """
    if not best:
        return list(group)
    judged = [(value, n) for n, e in enumerate(group) if (value := value_of(e)) is not None]
    ranked = sorted(judged, key=lambda each: -each[0])
    kept = {n for _, n in ranked[: best[min(visit, len(best) - 1)]]}
    return [e for n, e in enumerate(group) if n in kept]


def curriculum_metrics(
    stream: "GroupStream", groups: Sequence[Sequence[Episode]]
) -> dict[str, float]:
    """The share of the candidates of these groups that a curriculum leaves out; nothing without
    one."""
    if not isinstance(stream, StoredGroups) or not stream.best:
        return {}
    sizes = {group[0].group: len(group) for group in stream.groups if group}
    whole = sum(sizes[group[0].group] for group in groups if group)
    return {"left_out_share": 1 - sum(map(len, groups)) / whole} if whole else {}


def is_stored(groups: Sequence[Sequence[Episode]]) -> bool:
    """Whether the groups hold turns and none of them was sampled."""
    turns = [turn for group in groups for e in group for turn in e.turns]
    return bool(turns) and all(turn.ended == "stored" for turn in turns)


@dataclass(frozen=True)
class StoredPrompts:
    """Groups that a stage sampled before, in their batches."""

    groups: Sequence[Sequence[Episode]]
    prompts: int

    @property
    def batches(self) -> int:
        """Batches that there are."""
        return -(-len(self.groups) // self.prompts)

    def next(self, policy: Policy, place: Place, journal: Journal) -> list[list[Episode]]:
        """The `prompts` groups from position `place.cursor`; none behind the last."""
        chosen = self.groups[place.cursor : place.cursor + self.prompts]
        return [list(group) for group in chosen]


GroupStream = PromptStream | StoredGroups | StoredPrompts
"""Where a step's groups come from: sampled now, or earlier."""
