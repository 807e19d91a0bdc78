"""What can be known of an experiment's model before a run is made and before its weights are read.

Loading says the rest: which weights are missing, and whether they are numbers.
"""

from pathlib import Path

from assay.lab.endpoint_runs import is_endpoint
from assay.lab.merged import model_folder
from assay.lab.spec.experiment import Experiment
from assay.models.folder import CONFIG
from assay.models.load import check_loadable
from assay.models.supported import refuse_untrainable


def refuse_unopenable(experiment: Experiment, root: Path) -> None:
    """Raise what `load.check_loadable` does, and ModelUnsupported for stages that cannot train.

    A model behind an endpoint is not looked at.
    """
    if is_endpoint(experiment.model):
        return
    folder = model_folder(experiment.model, root)
    config, _ = check_loadable(folder)
    if experiment.stage:
        refuse_untrainable(config, folder / CONFIG)
