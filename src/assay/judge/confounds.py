"""Finds everything in which two manifests differ, its part of a run, and whether it was declared.

Manifests are compared as nested tables; the caller reads them from disk.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["declared", "tested", "allowed", "follows", "warning", "note", "confound"]

NOTES = frozenset(
    {"machine", "packages", "time", "name", "about", "sources", "dataset", "imported"}
)
"""Parts of a manifest whose differences are shown and do not make a comparison unfair. Where a
`dataset` of another tool lay is one: the questions themselves are compared. So is where a run was
taken over from: its settings are compared in Assay's words, and an unknown one equals none."""

WARNED = (
    *("machine.precision.master", "machine.precision.compute", "machine.precision.device"),
    *("machine.device", "machine.dtype"),
)
"""Notes that can move a score, and are warned of: the number formats and the kind of device."""

SPEC_WORDS = {
    "stage": "stages",
    "evaluate": "evaluation",
    "model": "base_weights",
    "seeds": "seed",
}
"""An experiment file names the parts of a manifest by these words, and `vary` may use them."""

RENDERING_ARGUMENTS = tuple(
    f"model_args.{name}"
    for name in (
        *("tokenizer", "tokenizer_path", "tokenizer_revision", "tokenizer_mode"),
        *("use_fast_tokenizer", "add_bos_token", "prefix_token_id", "chat_template"),
        *("chat_template_args", "chat_template_kwargs", "enable_thinking", "think_end_token"),
    )
)
"""Arguments of a model in other tools that say how its prompts are written."""
SAMPLING_ARGUMENTS = tuple(
    f"model_args.{name}"
    for name in (
        *("max_gen_toks", "max_new_tokens", "max_tokens", "max_length", "max_model_len"),
        *("truncation", "truncate", "truncation_side", "do_sample", "temperature", "top_p"),
        *("top_k", "min_p", "repetition_penalty", "seed", "generation_config"),
    )
)
"""Arguments of a model in other tools that say how its answers are drawn and cut."""

SOURCE = ("source", "hub", "file_sha256", "samples", "expand")
LEFT_OUT = ("nulls", "where", "undeclared_calls", "max_prompt_tokens", "min_tokens", "max_tokens")
SPLIT = ("contents_sha256", "split", "sources")
OF_DATA: Mapping[str, tuple[str, ...]] = {
    "contents_sha256": (
        *(*SOURCE, *LEFT_OUT, "format", "columns", "csv", "pass_rate", "examples"),
        *("take", "selection", "split"),
    ),
    "groups": ("contents_sha256",),
    "selection": ("take",),
    "prompts_sha256": ("contents_sha256",),
    "total": (*SOURCE, "sources"),
    "sources": ("mix", "epoch_rows"),
    **dict.fromkeys(("train", "dev", "test"), SPLIT),
    "dropped": ("contents_sha256", *LEFT_OUT, "expand"),
}
MORE = {
    "prompts_sha256": ("stages.*.rendering", "base_weights"),
    "sources": ("data.*.contents_sha256",),
}
CONSEQUENCES: Mapping[str, tuple[str, ...]] = {
    **{
        f"data.{{}}.{key}": (*(f"data.{{}}.{name}" for name in names), *MORE.get(key, ()))
        for key, names in OF_DATA.items()
    },
    "stages.{}.from": ("stages.{}.start",),
    "stages.{}.allow": ("stages.{}.trainer",),
    "stages.{}.unlike": ("stages.{}.trainer",),
    "stages.{}.rendering.sha256": ("stages.{}.rendering.name", "base_weights"),
    "evaluation.{}.items_hash": ("evaluation.{}.options", "data"),
    "evaluation.{}.rendering": ("base_weights",),
    "evaluation.{}.prompts_sha256": (
        "evaluation.{}.items_hash",
        "evaluation.{}.rendering",
        "base_weights",
        *RENDERING_ARGUMENTS,
    ),
}
"""A fingerprint, and what it is worked out from: where one of those differs, the fingerprint must
too, and its difference is no further factor. `{}` is a name, the same in both."""

ABSENT = "(absent)"

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confound:
    """One difference between two manifests. `kind` tells whether it is a confound."""

    path: str
    """Dotted path of the value."""
    control: Any
    """The control's value; ABSENT when it has none."""
    other: Any
    kind: Kind


def differences(
    control: Mapping[str, Any],
    other: Mapping[str, Any],
    vary: Sequence[str] = (),
    allow: Sequence[str] = (),
    notes: Sequence[str] = (),
    tested: Sequence[str] = (),
) -> list[Confound]:
    """Every value in which two manifests differ, by dotted path.

    `vary` and `allow` are dotted prefixes, in the words of the manifest or of the experiment file:
    what somebody declared to differ, and what the reader accepts knowingly. `tested` are those of
    what is compared by its nature, as two models are, whatever anybody declared. A prefix covers
    whole path parts: `stages.rl.kl` covers `stages.rl.kl.coef` and not `stages.rl.klein`. `notes`
    are prefixes of values that make nothing unfair, beside NOTES. A fingerprint that differs
    because a recorded setting does is a consequence ("follows"), see CONSEQUENCES.
    """
    left, right = dict(_leaves(control)), dict(_leaves(other))
    paths = [
        path
        for path in sorted(left.keys() | right.keys())
        if left.get(path, ABSENT) != right.get(path, ABSENT)
        and not (_only_empty(path, left, right) or _only_empty(path, right, left))
    ]
    meanings: dict[Kind, Sequence[str]] = {
        "declared": vary,
        "tested": tested,
        "allowed": allow,
        "warning": WARNED,
        "note": (*NOTES, *notes),
    }

    def kind_of(path: Path) -> Kind:
        for kind, prefixes in meanings.items():
            if _covered(path, prefixes):
                return kind
        return "follows" if _explained(path, paths) else "confound"

    return [
        Confound(".".join(p), left.get(p, ABSENT), right.get(p, ABSENT), kind_of(p)) for p in paths
    ]


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a nested table by dotted path; an empty table is a value."""
    return {".".join(path): value for path, value in _leaves(table)}


def idle(prefixes: Sequence[str], confounds: Sequence[Confound]) -> list[str]:
    """The prefixes, of `vary` or `allow`, that lead to no difference that was found."""
    paths = [tuple(difference.path.split(".")) for difference in confounds]
    return [p for p in dict.fromkeys(prefixes) if not any(_covered(path, [p]) for path in paths)]


def _leaves(table: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Paths and values of a nested table; an empty table is a value."""
    for key, value in table.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _only_empty(path: Path, one: Mapping[Path, Any], other: Mapping[Path, Any]) -> bool:
    """Whether one has an empty table where the other has values, each a difference itself."""
    deeper = (below for below in other if len(below) > len(path))
    return one.get(path) == {} and any(below[: len(path)] == path for below in deeper)


def _explained(path: Path, differing: Collection[Path]) -> bool:
    """Whether something that this value is worked out from differs as well."""
    for pattern, causes in CONSEQUENCES.items():
        parts = pattern.split(".")
        if not _matches(path, parts):
            continue
        name = path[parts.index("{}")]
        wanted = [cause.replace("{}", name).split(".") for cause in causes]
        return any(_matches(difference, cause) for difference in differing for cause in wanted)
    return False


def _matches(path: Sequence[str], prefix: Sequence[str]) -> bool:
    """Whether a path begins with the parts of a pattern, in which `{}` and `*` are any part."""
    if len(path) < len(prefix):
        return False
    return all(
        want in ("{}", "*") or want == part for want, part in zip(prefix, path, strict=False)
    )


def _covered(path: Path, prefixes: Sequence[str]) -> bool:
    """Whether one of the dotted prefixes leads to this path."""
    # As one text, because a name in a path may have a dot itself: the reward "tools.ast".
    dotted = ".".join(path) + "."
    for prefix in prefixes:
        if prefix.startswith("model."):
            # `model.policy` is the trained model, any other name a helper model.
            name = prefix.removeprefix("model.")
            prefix = "model" if name == "policy" else f"helpers.{name}"
        first, dot, rest = prefix.partition(".")
        if dotted.startswith(f"{SPEC_WORDS.get(first, first)}{dot}{rest}."):
            return True
    return False


PARTS: Mapping[str, tuple[str, ...]] = {
    "base weights": ("base_weights",),
    "helper models": ("helpers",),
    "split": ("data.*.split",),
    "rows": tuple(
        f"data.*.{name}"
        for name in (
            *("train", "dev", "test", "take", "dropped", "where", "selection"),
            *("mix", "epoch_rows", "sources", "order"),
        )
    ),
    "prompt rendering": (
        "data.*.prompts_sha256",
        "stages.*.rendering",
        "evaluation.*.rendering",
        "evaluation.*.prompts_sha256",
        *RENDERING_ARGUMENTS,
    ),
    "data": ("data",),
    "reward": ("stages.*.reward", "stages.*.reward_deadline"),
    "estimator": tuple(
        f"stages.*.{name}"
        for name in (
            *("algorithm", "advantage", "loss", "aggregation", "clip", "kl", "entropy_coef"),
            *("drop_without_signal", "dynamic", "overlong", "tau", "keep"),
            *("advantage_options", "importance", "top_entropy_share"),
        )
    ),
    "sampling": (
        *("stages.*.sampling", "evaluation.*.sampling", "evaluation.*.repeats"),
        "random_seeds",
        *SAMPLING_ARGUMENTS,
    ),
    "hyper-parameters": ("stages", "seed", "as_reported", "task", "task_source", "agent"),
    "checker": (
        *("evaluation.*.checker", "evaluation.*.reward", "evaluation.*.reward_deadline"),
        "evaluation.*.scorer",
    ),
    "items": ("evaluation", "dataset"),
    "code": ("code",),
    "precision and engine": ("engine", "model_args", *WARNED),
    "packages and machine": ("packages", "machine"),
}
"""Part -> prefixes of its paths; the first part with a prefix that fits has the path. `*` is any
one name."""

OTHER = "other"
RANK: tuple[Kind, ...] = (
    *("confound", "allowed", "warning"),
    *("declared", "tested", "follows", "note"),
)
"""Worst first."""


@dataclass(frozen=True, slots=True)
class PartState:
    """One part of two runs: the same, or in which values it differs."""

    part: str
    differences: tuple[Confound, ...]

    @property
    def kind(self) -> Kind | None:
        """The worst that a difference of the part counts as; None where nothing differs."""
        kinds = {difference.kind for difference in self.differences}
        return next((kind for kind in RANK if kind in kinds), None)


def part_of(path: str) -> str:
    """The part that a dotted path of a manifest belongs to; OTHER for none."""
    parts = path.split(".")
    for part, prefixes in PARTS.items():
        if any(_matches(parts, prefix.split(".")) for prefix in prefixes):
            return part
    return OTHER


def by_part(differences: Sequence[Confound]) -> list[PartState]:
    """Every part in the order of PARTS with its differences; OTHER only where it has some."""
    confounds: dict[str, list[Confound]] = {part: [] for part in PARTS}
    for difference in differences:
        confounds.setdefault(part_of(difference.path), []).append(difference)
    return [PartState(part, tuple(those)) for part, those in confounds.items()]
