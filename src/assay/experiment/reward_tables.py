"""What `reward` may be in a stage or an evaluation, and the settings of judging.

Names of rewards are looked up in `lab.setup.validate`; `tasks.running` scores.
"""

from assay.experiment.base_table import Few, Positive, Table, Weight

Reward = str | dict[str, Weight]
"""A reward by name, or a table of names and weights whose weighted sum is the reward."""


class RewardSettings(Table):
    """How the rewards of a stage or an evaluation are run."""

    reward_deadline: Positive = 10.0
    """Seconds for one completion in a worker, or for one batch of a judge."""
    reward_workers: Few = 2
    """Worker processes side by side, for rewards that run in workers."""
    reward_concurrency: Few = 8
    """Batches that judges are given side by side."""
