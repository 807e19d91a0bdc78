"""Sums in one turn, with two weighted rewards and a metric."""

import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: int = 0


class Sum(vf.Task[Data]):
    @vf.reward(weight=2.0)
    async def right(self, trace):
        return float(trace.last_reply.strip() == str(self.data.answer))

    @vf.reward(weight=0.5)
    async def short(self, trace):
        return 1 / (1 + len(trace.last_reply))

    @vf.metric
    async def length(self, trace):
        return float(len(trace.last_reply))


class Sums(vf.Taskset[Sum]):
    def load(self):
        for n in range(4):
            data = Data(prompt=f"What is {n} + {n}?", system_prompt="Add.", answer=2 * n)
            yield Sum(data, self.config.task)


__all__ = ["Sums"]
