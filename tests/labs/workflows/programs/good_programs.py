"""Programs that are right, written by hand: ways of writing that the validator has to know.

`TEXT` take a problem, `CODE` a problem and an entry point.
"""

import tomllib
from pathlib import Path

HEAD = """\
class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.answer_generate = operator.AnswerGenerate(self.llm)
        self.programmer = operator.Programmer(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)
        self.md_ensemble = operator.MdEnsemble(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)
        self.format = operator.Format(self.llm)
        self.test = operator.Test(self.llm)
        self.custom_code_generate = operator.CustomCodeGenerate(self.llm)

"""


def text(body: str, before: str = "", after: str = "") -> str:
    """A program with all operators made, and `__call__` with a body."""
    lines = "\n".join(f"        {line}" if line else "" for line in body.strip().split("\n"))
    return f"{before}{HEAD}    async def __call__(self, problem):\n{lines}\n{after}"


PROGRAMS = {
    kind: {name: source.replace("@HEAD@\n", HEAD) for name, source in programs.items()}
    for kind, programs in tomllib.loads(
        Path(__file__).with_name("programs.toml").read_text(encoding="utf-8")
    ).items()
}
TEXT, CODE = PROGRAMS["text"], PROGRAMS["code"]
AFLOW = TEXT["aflow"]
