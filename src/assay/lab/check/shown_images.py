"""Checks that the frozen model of demonstrations can read the images that its prompts will show.

Images are decoded, an even share of them where there are many; no model is run.
"""

from collections.abc import Iterator

from assay.data.pictures import images_in, picture_of
from assay.data.row import ImagePart, Message, Row
from assay.errors import InputError
from assay.judge.findings import Finding
from assay.lab.check.subject import SHOWN, Seen, Subject
from assay.lab.setup.checkpoint_models import model_folder
from assay.lab.setup.helper_models import in_process
from assay.models.vision_language import is_vision_language
from assay.tasks.demos.demonstrations import DEMONSTRATIONS, FROZEN, set_of

MOST_DECODED = 256
"""Images that are tried; one of a photograph's size takes about 10 ms."""
OTHER_MODEL = "name a model that reads images (hf:, path: or openai:), or questions without images"


def shown_images(subject: Subject) -> Seen:
    """Images for a model of text, and images that cannot be read."""
    session = subject.session
    spec = session.experiment.helpers.get(FROZEN)
    if spec is None or not in_process(spec):
        # Behind an endpoint the server decodes them.
        return
    images = {part.sha256: part for part in images_in(shown_messages(subject))}
    if not images:
        return
    if not is_vision_language(model_folder(spec.source, session.run.root, images=True)):
        first = next(iter(images.values()))
        yield Finding(
            "error",
            f"model.{FROZEN} reads text alone",
            f"its prompts show {len(images)} images, the first at {where(first)}",
            OTHER_MODEL,
        )
        return
    yield from unreadable_images([*images.values()])


def shown_messages(subject: Subject) -> Iterator[Message]:
    """The messages of every query, and of every demonstration that some query may pick."""
    session = subject.session
    rows: list[Row] = [row for made in session.sets.values() for row in made.rows]
    rows += [row for evaluation in session.evaluations.values() for row in evaluation.items]
    picking = {row.extra[DEMONSTRATIONS]: row for row in rows if DEMONSTRATIONS in row.extra}
    for row in rows:
        yield from row.prompt if DEMONSTRATIONS in row.extra else ()
    for row in picking.values():
        yield from (each.asked for each in set_of(row).demonstrations)


def unreadable_images(images: list[ImagePart]) -> Iterator[Finding]:
    """The first few images that cannot be decoded."""
    step = max(1, len(images) // MOST_DECODED)
    found = 0
    for part in images[::step]:
        try:
            picture_of(part)
        except InputError as error:
            found += 1
            yield Finding("error", error.problem, where(part), error.fix or "restore it")
        if found == SHOWN:
            return


def where(part: ImagePart) -> str:
    """File, line and field of an image."""
    file, line, field = part.origin
    return f"{file}:{line}: {field}"
