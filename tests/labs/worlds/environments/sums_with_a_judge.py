"""Sums that a judge grades: a helper model by its name."""

import verifiers.v1 as vf
from sums_of_one_turn import Data


class Grader(vf.Judge):
    prompt = "Is {answer} right for {question}? Say yes or no."


class Judged(vf.Task[Data]):
    @vf.reward
    async def graded(self, trace):
        judge = Grader(vf.JudgeConfig(model="grader"))
        asked = judge.build_messages(answer=trace.last_reply, question=self.data.prompt)
        return float((await judge.complete(asked, trace=trace)).text.strip() == "yes")


class Sums(vf.Taskset[Judged]):
    def load(self):
        for n in range(4):
            yield Judged(Data(prompt=f"What is {n} + {n}?", answer=2 * n), self.config.task)


__all__ = ["Sums"]
