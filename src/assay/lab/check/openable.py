"""What can be known of an experiment's model before a run is made and before its weights are read.

Loading says the rest: which weights are missing, and whether they are numbers.
"""

from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage
from assay.lab.evaluate.endpoint_runs import is_endpoint
from assay.lab.setup.merged_models import model_folder
from assay.models.folder import CONFIG
from assay.models.load import check_loadable
from assay.models.supported import refuse_untrainable


class AnswersTooLong(InputError):
    """`max_tokens` that no answer of the model can have."""


def refuse_unopenable(experiment: Experiment, root: Path) -> None:
    """Raise what `load.check_loadable` does, ModelUnsupported for stages that cannot train, and
    AnswersTooLong.

    A model behind an endpoint is not looked at.
    """
    if is_endpoint(experiment.model):
        return
    folder = model_folder(experiment.model, root)
    config, _ = check_loadable(folder)
    if experiment.stage:
        refuse_untrainable(config, folder / CONFIG)
    refuse_beyond(experiment, config)


def refuse_beyond(experiment: Experiment, config: Any) -> None:
    """Raise AnswersTooLong where the answers of a stage or an evaluation may be too long."""
    positions = config.max_position_embeddings
    limits = {
        f"stage.{name}": stage.sampling.max_tokens
        for name, stage in experiment.stage.items()
        if isinstance(stage, SamplingStage)
    }
    limits |= {f"evaluate.{n}": e.sampling.max_tokens for n, e in experiment.evaluate.items()}
    for place, limit in limits.items():
        refuse_longer(f"{place}.sampling.max_tokens", limit, positions)


def refuse_longer(field: str, limit: int, positions: int | None) -> None:
    """Raise AnswersTooLong where `limit` is more than all that the model reads at once."""
    if positions is not None and limit > positions:
        problem = f"{limit} tokens, and the model reads {positions} at once"
        raise AnswersTooLong(problem, field=field, fix="allow fewer")
