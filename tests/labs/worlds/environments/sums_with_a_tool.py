"""Sums with a tool that adds; calls of it are a metric."""

import verifiers.v1 as vf
from sums_of_one_turn import Data, Sum


class Adder(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)


class ToolSum(Sum):
    @classmethod
    def toolsets(cls, config):
        return [Adder(vf.ToolsetConfig())]


class Sums(vf.Taskset[ToolSum]):
    def load(self):
        for n in range(4):
            yield ToolSum(Data(prompt=f"What is {n} + {n}?", answer=2 * n), self.config.task)


__all__ = ["Sums"]


if __name__ == "__main__":
    Adder.run()
