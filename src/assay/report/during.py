"""An observer that writes the progress reports of a run while it goes on, and tells another.

When a report is due is `lab.monitor.report_journal`' business; what it says,
`lab.monitor.progress`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.lab.monitor.observer import Observer
from assay.report.page import write_progress
from assay.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class Reporting:
    """See `lab.monitor.observer.Observer`; everything is passed on to `inner`."""

    inner: Observer
    lang: str = "en"

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        self.inner.note(text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""
        self.inner.stage(name, method, step, steps)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        self.inner.step(step, metrics)

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """See `Observer.evaluation`."""
        self.inner.evaluation(name, checkpoint, done, total)

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """Write the report. One that cannot be written is told, and stops no training."""
        try:
            write_progress(run, stage, step, why, self.lang)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self.inner.note(f"the report of {stage} step {step} was not written: {problem}")
            return
        self.inner.report(run, stage, step, why)
