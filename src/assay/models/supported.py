"""Checks whether a model can be trained and sampled here, by its config.json and its tokenizer, and
whether the packed path (`layers`) computes it or the plain one (`plain_forward`).

Rotary positions whose frequencies follow from the longest sequence of a batch are refused. So is a
tokenizer that is damaged or belongs to another model; it must reproduce plain text. Weight files
are checked in `load`.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import Any

from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import __version__ as transformers_version
from transformers.activations import ACT2FN
from transformers.integrations.heterogeneity.configuration_utils import (
    AmbiguousGlobalPerLayerAttributeError,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging

from assay.data.renderings.template import RenderingError, check_template
from assay.errors import InputError
from assay.models.folder import CONFIG, read_object


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Only errors are logged and no bars are drawn inside; the former settings return after."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def old_names_of_peft() -> Iterator[None]:
    """peft 0.21 asks Transformers 5.23 for `is_activation_checkpointing` by its former name."""
    with warnings.catch_warnings():
        warning = "`is_gradient_checkpointing` is deprecated"
        warnings.filterwarnings("ignore", warning, FutureWarning)
        yield


def refuse_length_dependent(config: Any, file: Path | None = None) -> None:
    """Raise InputError for `dynamic` and `longrope`, which change with the length.

    `config` is a text model's; kinds are recognised as Transformers' `dynamic_rope_update` does.
    """
    for kind in rotary_kinds(getattr(config, "rope_parameters", None)):
        if "dynamic" in kind or kind == "longrope":
            problem = f"rotary positions of type {kind!r} depend on the longest sequence of a "
            problem += "batch, so that a completion's log-probs would depend on the others'"
            fix = "use a model of type default, linear, yarn or llama3"
            raise InputError(problem, file=file, field="rope_parameters.rope_type", fix=fix)


def rotary_kinds(parameters: Any) -> Iterator[str]:
    """The kinds named in a config's `rope_parameters`, which may be a table for each layer type."""
    if not isinstance(parameters, Mapping):
        return
    if isinstance(kind := parameters.get("rope_type"), str):
        yield kind
    for nested in parameters.values():
        yield from rotary_kinds(nested)


FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite")
"""Model types that the packed path computes: their layers, and vocabulary scores that are the
output projection of the last hidden state, for Granite times a constant."""
SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"),
)
"""Fields that hold whole numbers from 1 up, or a list of them, one for each layer; an absent one
follows from the others, or plays no part in the family."""


COMPOSITES = {*MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, *MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES}
"""Model types that Transformers knows to read text and something else."""
TWINS = {
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
}
"""Text models that compute what another does where nothing but text is read: the time, height and
width of a token of text are one number (Qwen2-VL, arXiv 2409.12191, section 2.1)."""
ROTARY_OF_IMAGES = ("mrope_section", "mrope_interleaved")
SCORES = {"logits_scaling": 1.0, "logit_scale": 1.0, "final_logit_softcapping": None}
"""What text models do to their scores, and those made of several leave out, Gemma's apart; by the
value that does nothing."""
UNCAUSAL = ("paligemma",)
"""Read a whole prompt in both directions."""


def read_config(directory: Path) -> PreTrainedConfig:
    """The model's config; of a checkpoint of several models, that of the one that reads text.

    Raises InputError unless it is that of a causal language model that Transformers has, and
    InputError.
    """
    file = directory / CONFIG
    stated = read_object(file)
    family = stated.get("model_type")
    known = COMPOSITES.union(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    if not isinstance(family, str) or family not in known:
        names = stated.get("architectures")
        named = f" ({', '.join(map(str, names))})" if isinstance(names, list) and names else ""
        problem = f"{shown(family)}{named} is no causal language model that Transformers "
        problem += f"{transformers_version} has"
        fix = f"use a model of another family; the fastest are {', '.join(FAMILIES)}"
        raise InputError(problem, file=file, field="model_type", fix=fix)
    config = open_config(directory)
    if config.is_encoder_decoder:
        family = shown(config.model_type)
        problem = f"{family} writes from what an encoder read, and prompts here have none"
        raise InputError(problem, file=file, fix="use a decoder-only model")
    if config.get_text_config(decoder=True) is not config:
        config = text_config(config, file)
    causal = causal_class(config).__name__
    if (named := config.architectures or []) and named != [causal]:
        problem = f"is {shown(named)}, not {[causal]}"
        raise InputError(problem, file=file, field="architectures")
    refuse_sizes(config, file)
    refuse_length_dependent(config, file)
    return config


def open_config(directory: Path) -> PreTrainedConfig:
    """The config of a folder as Transformers opens it. Raises InputError, for quantised weights
    too."""
    file = directory / CONFIG
    if read_object(file).get("quantization_config") is not None:
        problem = "quantised weights can be neither trained nor sampled here"
        fix = "use the model as it was before it was quantised"
        raise InputError(problem, file=file, field="quantization_config", fix=fix)
    try:
        with quiet_transformers():
            return AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except Exception as error:
        raise InputError(f"not a known model config: {reason(error)}", file=file) from error


def text_config(config: PreTrainedConfig, file: Path) -> PreTrainedConfig:
    """The config of the causal language model in a composite one. Raises InputError."""
    text: Any = config.get_text_config(decoder=True)
    kind = text.model_type
    if kind in TWINS:
        text = twin(text, TWINS[kind])
    if config.model_type in UNCAUSAL or type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        problem = f"the text model of {config.model_type!r} ({kind}) is no causal language model"
        problem += " that Transformers has"
        raise InputError(problem, file=file, fix="use a model of another family")
    for name, none in SCORES.items():
        scaled = getattr(text, name, none) not in (none, None)
        if scaled and not config.model_type.startswith("gemma"):
            problem = f"{config.model_type} leaves out the {name} of its text model in Transformers"
            raise InputError(problem, file=file, fix="use a model of another family")
    # What Transformers goes by when it ties the head of the whole.
    text.tie_word_embeddings = config.tie_word_embeddings
    text.architectures = None
    return text


def twin(text: Any, kind: str) -> PreTrainedConfig:
    """The config of the model of another type that computes the same of a text."""
    values = text.to_dict()
    rotary = values.get("rope_parameters") or {}
    plain = {name: value for name, value in rotary.items() if name not in ROTARY_OF_IMAGES}
    for name in ("model_type", "architectures", "rope_parameters", "transformers_version"):
        values.pop(name, None)
    return CONFIG_MAPPING[kind](**(values | {"rope_parameters": plain}))


def causal_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The causal language model of a config's family."""
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]  # type: ignore[return-value]


def refuse_sizes(config: Any, file: Path) -> None:
    """Raise InputError for numbers and names of which no layer can be made."""
    for name in SIZES:
        value = field_of(config, name)
        for each in value if isinstance(value, list) else [value]:
            if each is not None and (type(each) is not int or each < 1):
                raise unusable(name, value, file)
    heads, keys = (field_of(config, name) for name in SIZES[3:5])
    if isinstance(heads, int) and isinstance(keys, int) and heads % keys:
        raise unusable("num_key_value_heads", keys, file)
    if not 0 <= (getattr(config, "rms_norm_eps", None) or 0) < math.inf:
        raise unusable("rms_norm_eps", config.rms_norm_eps, file)
    if isinstance(act := getattr(config, "hidden_act", None), str) and act not in ACT2FN:
        raise unusable("hidden_act", act, file)
    for kind in rotary_kinds(getattr(config, "rope_parameters", None)):
        if kind != "default" and kind not in ROPE_INIT_FUNCTIONS:
            raise unusable("rope_parameters.rope_type", kind, file)
    for name in ("eos_token_id", "pad_token_id"):
        refuse_ids(getattr(config, name, None), config.vocab_size, file, name)


def field_of(config: Any, name: str) -> Any:
    """A field of a config; None where there is none, or where it differs from layer to layer."""
    try:
        return getattr(config, name, None)
    except AmbiguousGlobalPerLayerAttributeError:
        return None


def refuse_ids(ids: Any, vocabulary: int, file: Path, field: str) -> None:
    """Raise InputError unless `ids` is None, a token id or a list of them."""
    for id_ in ids if isinstance(ids, list) else [] if ids is None else [ids]:
        if type(id_) is not int or not 0 <= id_ < vocabulary:
            problem = f"{shown(id_)} is no token id"
            raise InputError(problem, file=file, field=field, fix=f"0 to {vocabulary - 1}")


def unusable(field: str, value: Any, file: Path) -> InputError:
    """The error about one value of a config."""
    problem = f"no model can be made with {shown(value)}"
    return InputError(problem, file=file, field=field, fix="restore the model's own config")


def shown(value: Any) -> str:
    """A value of a config for a message of one line."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


SLOWER = "sampled and trained by Transformers' own forward, slower and without its own dropout"
"""What the plain path means, in a line."""


def why_plain(config: Any) -> str:
    """Why a model takes the plain path (`plain_forward`); "" where the packed path computes it."""
    if config.model_type not in FAMILIES:
        return f"the packed path does not compute {config.model_type} layers"
    # Mistral has it in its config, the Qwen family in the types of its layers.
    windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    window = config.sliding_window if windows or config.model_type == "mistral" else None
    if window is not None:
        return f"the packed path computes no sliding window ({shown(window)} tokens)"
    return ""


def refuse_untrainable(config: PreTrainedConfig, file: Path) -> None:
    """Raise InputError for what the packed path samples and does not train: dropout in
    attention. The plain path trains without the model's own dropout.
    """
    dropout = getattr(config, "attention_dropout", 0)
    if dropout and not why_plain(config):
        problem = f"attention dropout of {shown(dropout)} is not trained here"
        raise InputError(problem, file=file, field="attention_dropout", fix="set it to 0")


def reason(error: Exception) -> str:
    """The message of another library's error, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2])
    return text if len(text) <= 200 else f"{text[:200]}..."


FILE = "tokenizer.json"
AGAIN = "copy or download it again"
SAMPLE = f"{ascii_letters} {digits} {punctuation}"
"""Comes back from every tokenizer of the families as it was, white space apart."""
TEMPLATE = "chat_template.jinja"
SETTINGS = "tokenizer_config.json"


def read_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model's folder.

    Raises InputError, and RenderingError for a chat template that cannot be used.
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
        raise InputError(problem, file=directory, fix=AGAIN) from error
    if "".join(back.split()) != "".join(SAMPLE.split()):
        problem = f"the tokenizer turns {SAMPLE!r} into {back[:80]!r}"
        raise InputError(problem, file=directory, fix=AGAIN)
    try:
        check_template(tokenizer)
    except RenderingError as error:
        file = directory / (TEMPLATE if (directory / TEMPLATE).is_file() else SETTINGS)
        raise RenderingError(error.problem, file=file, fix=error.fix) from error
    return tokenizer
