"""The tools lab with generated rows beside BFCL's own: single calls, and tasks of several turns.

`task = "path:experiments/tools/generated_rows.py"`, then `source = "generated_calls:300"`,
`"generated_calls_held_out:200"`, `"simulated:54"` or `"simulated_held_out:20"`.
"""

from generated_calls import read_generated_calls, read_held_out_calls
from simulated import read_held_out, read_simulated

from assay.labs.tools.task import ToolsTask


class GeneratedRows(ToolsTask):
    """Everything else is the built-in task's, its name in rewards too."""

    sources = {  # noqa: RUF012
        **ToolsTask.sources,
        "generated_calls": read_generated_calls,
        "generated_calls_held_out": read_held_out_calls,
        "simulated": read_simulated,
        "simulated_held_out": read_held_out,
    }
