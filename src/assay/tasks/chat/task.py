"""The task called "chat": any conversations that end with an answer, without a line of Python.

Prompts are the rows' own, answers are imitated as they are, and five rewards compare with what the
row says is right. It has no benchmarks: evaluations ask rows of a data set.
"""

from assay.tasks.chat.rewards import REWARDS
from assay.tasks.task import BaseTask


class ChatTask(BaseTask):
    """Conversations as they are, with rewards for texts, JSON, patterns and schemas."""

    name = "chat"
    rewards = REWARDS


TASK = ChatTask()
