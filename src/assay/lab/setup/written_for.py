"""What a converted file is written for: a model and a rendering, or those of an experiment."""

from pathlib import Path

from assay.data.formats.plain_text import PlainText
from assay.data.renderings.rendering import automatic
from assay.errors import InputError
from assay.experiment.read_file import read_experiment


def written_for(target: str | None, rendering: str | None, root: Path) -> PlainText | None:
    """The text of `rendering` for the model that `target` names, or for an experiment file's; None
    where neither is named. An experiment's rendering is that of its stages, a model's "auto".

    Raises InputError for stages that differ in their renderings, and what reading them raises.
    """
    if target is None:
        return None if rendering is None else PlainText(rendering)
    # Only a model's own template needs the extra `train`.
    from assay.lab.setup.checkpoint_models import model_folder
    from assay.models.supported import read_tokenizer

    source, name = target, rendering or "auto"
    if target.endswith(".toml"):
        experiment = read_experiment(Path(target))
        source = experiment.model
        names = {stage.rendering for stage in experiment.stage.values()}
        if rendering is None and len(names) > 1:
            problem = f"has stages in several renderings: {', '.join(sorted(names))}"
            raise InputError(problem, file=target, fix="choose one with --rendering")
        name = rendering or min(names, default="auto")
    tokenizer = read_tokenizer(model_folder(source, root))
    return PlainText(automatic(tokenizer) if name == "auto" else name, tokenizer)
