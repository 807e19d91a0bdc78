"""Sums of which the model hears whether it was right, three times at most."""

import verifiers.v1 as vf
from sums_of_one_turn import Sum, Sums


class HintConfig(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig()


class Hints(vf.Env[HintConfig]):
    async def run(self, task, agents):
        async with agents.solver.interaction(task) as talk:
            segment, asked = await talk.turn(), 1
            while not segment.terminated and asked < 3:
                if segment.last_reply.strip() == str(task.data.answer):
                    break
                segment, asked = await talk.turn(f"Wrong: it is {task.data.answer}."), asked + 1
        talk.trace.record_reward("turns", float(asked))


class Taskset(Sums):
    pass


__all__ = ["Hints", "Sum", "Taskset"]
