"""Reads the tokenizer beside a model, and refuses one that is damaged or another model's.

That it writes plain text as that text, and that its chat template ends, is tried; how conversations
are laid out in tokens is `data.renderings.rendering`'s part.
"""

from pathlib import Path
from string import ascii_letters, digits, punctuation

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from assay.data.renderings.template import RenderingError, check_template
from assay.errors import InputError
from assay.models.quiet import quiet_transformers
from assay.models.supported import read_object, reason

FILE = "tokenizer.json"
AGAIN = "copy or download it again"
SAMPLE = f"{ascii_letters} {digits} {punctuation}"
"""Comes back from every tokenizer of the families as it was, white space apart."""
TEMPLATE = "chat_template.jinja"
SETTINGS = "tokenizer_config.json"


class TokenizerError(InputError):
    """The folder's tokenizer cannot be read, or not used with this model."""


def read_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model's folder.

    Raises TokenizerError, and RenderingError for a chat template that cannot be used.
    """
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        back = str(tokenizer.decode(tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]))
    except Exception as error:
        for name in (FILE, SETTINGS):
            if (directory / name).is_file():
                read_object(directory / name)
        problem = f"the tokenizer cannot be used: {reason(error) or type(error).__name__}"
        raise TokenizerError(problem, file=directory, fix=AGAIN) from error
    if "".join(back.split()) != "".join(SAMPLE.split()):
        problem = f"the tokenizer turns {SAMPLE!r} into {back[:80]!r}"
        raise TokenizerError(problem, file=directory, fix=AGAIN)
    try:
        check_template(tokenizer)
    except RenderingError as error:
        file = directory / (TEMPLATE if (directory / TEMPLATE).is_file() else SETTINGS)
        raise RenderingError(error.problem, file=file, fix=error.fix) from error
    return tokenizer
