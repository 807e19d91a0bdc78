"""Generates the reference of the experiment file as Markdown from its models.

`python -m assay.experiment.reference > docs/experiment.md` updates the page of the manual.
"""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from assay.experiment.base_table import SpecTable
from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import HELPERS, MODEL
from assay.experiment.reward_tables import RewardPart
from assay.experiment.rubric_file import RubricFile
from assay.experiment.stage_tables import CommonStage, DpoStage, SamplingStage
from assay.experiment.toml_write import inline

INTRODUCTION = """\
# The experiment file

An experiment is one TOML file. Brackets hold a key's type and its default, or the default alone
where it shows the type. Keys may be omitted unless they are required; unknown keys are errors.
`assay run FILE --set stage.NAME.steps=20` sets any key, `assay explain KEY` prints what stands
here, a run's `spec.toml` has every default. `make docs` writes this page.
"""

OWN_SECTIONS = (
    *("note", "log", HELPERS, "selector", "engine", "data", "selections", "synthesise", "stage"),
    *("evaluate", "guard", "milestone"),
)
"""Keys of an experiment whose tables have sections, in the order of these."""
_WORDS = {int: "integer", float: "number", str: "string", bool: "boolean", Any: "any value"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def reference() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    inner: dict[str, type[SpecTable]] = {}
    for heading, model, base in sections():
        fields = {k: f for k, f in model.model_fields.items() if _is_own(k, f, base)}
        more = ""
        if model is DpoStage:
            fields, more = _without(fields, SamplingStage, "stages that sample")
        parts.append(_section(f"## {heading}", model, fields, more))
        inner |= {name_of(table): table for f in fields.values() for table in tables_in(f)}
    for table in [*inner.values()]:
        inner |= {name_of(t): t for f in table.model_fields.values() for t in tables_in(f)}
    parts.append("## Inner tables\n")
    listed: list[type[SpecTable]] = []
    known = inner.values()
    ordered = dict.fromkeys(t for m in known for t in m.__mro__[1::-1] if t in known)
    for model in ordered:
        fields = {k: f for k, f in model.model_fields.items() if _is_own(k, f, None)}
        more = ""
        like = max(listed, key=lambda earlier: len(_shared(fields, earlier)), default=None)
        if like and _shared(fields, like):
            fields, more = _without(fields, like, f"[{name_of(like)}](#{name_of(like).lower()})")
        parts.append(_section(f"### {name_of(model)}", model, fields, more))
        listed += [] if more else [model]
    return "\n".join(parts)


def sections() -> Iterator[tuple[str, type[SpecTable], type[SpecTable] | None]]:
    """Headings with the model whose fields each lists, but for those it has from the second."""
    yield "Top level", Experiment, None
    for key in OWN_SECTIONS:
        field = Experiment.model_fields[key]
        table, *others = tables_in(field)
        if key == "stage":
            yield "`[stage.NAME]`, every method", CommonStage, None
            yield "Stages that sample: `rft`, `rce`, `grpo`, `distill`", SamplingStage, CommonStage
            for stage in (table, *others):
                (method,) = get_args(stage.model_fields["method"].annotation)
                yield f'`method = "{method}"`', stage, stage.__mro__[1]
            continue
        name = MODEL if key == HELPERS else key
        named = ".NAME" if get_origin(field.annotation) is dict else ""
        base = SamplingStage if key in ("synthesise", "evaluate") else None
        yield f"`[{name}{named}]`", table, base
    yield "A rubric, `rubric:FILE`", RubricFile, None


def _shared(fields: Mapping[str, FieldInfo], other: type[SpecTable]) -> list[str]:
    """The keys that another table has just so."""
    return [k for k, f in fields.items() if repr(other.model_fields.get(k)) == repr(f)]


def _without(
    fields: Mapping[str, FieldInfo], other: type[SpecTable], name: str
) -> tuple[dict[str, FieldInfo], str]:
    """The fields but for those that another table has just so, and a sentence that names these."""
    shared = _shared(fields, other)
    told = ", ".join(f"`{key}`" for key in shared)
    return {k: f for k, f in fields.items() if k not in shared}, f" {told}: as {name}."


def _is_own(key: str, field: FieldInfo, base: type[SpecTable] | None) -> bool:
    """Whether the section lists a field: not one of the base, nor one with sections of its own, nor
    one with a single value, which the heading or the first sentence has."""
    if len(get_args(field.annotation)) == 1 and get_origin(field.annotation) is Literal:
        return False
    if key in OWN_SECTIONS and field.annotation is Experiment.model_fields[key].annotation:
        return False
    return base is None or repr(base.model_fields.get(key)) != repr(field)


def _section(
    heading: str, model: type[SpecTable], fields: Mapping[str, FieldInfo], more: str = ""
) -> str:
    rows = [f"- `{key}` ({_type_and_default(f)}){_text(f)}" for key, f in fields.items()]
    about = " ".join((model.__doc__ or "").split()) + more
    return "\n".join([heading, "", about, "", *rows, ""])


def _text(field: FieldInfo) -> str:
    """What a key means; nothing where the inner table says it."""
    return f": {' '.join(field.description.split())}" if field.description else ""


def _type_and_default(field: FieldInfo) -> str:
    """The type with its limits, then the default, which shows a plain type by itself."""
    kind, limits, default = _words(field.annotation), _limits(field.metadata), _default(field)
    if default.startswith("; `") and kind in _WORDS.values():
        return f"{limits}{default}".lstrip("; ")
    return f"{kind}{limits}{default}"


def _default(field: FieldInfo) -> str:
    """What stands behind the type: nothing for a key that may be left out and has no default."""
    filled = field.json_schema_extra
    if isinstance(filled, dict) and filled["filled"] != "its defaults":
        return f"; {filled['filled']}"
    if field.default is PydanticUndefined and field.default_factory is None and not filled:
        return "; required"
    if field.default in (None, PydanticUndefined) or isinstance(field.default, SpecTable):
        return ""
    return f"; `{inline(field.default)}`"


def tables_in(field: FieldInfo) -> Iterator[type[SpecTable]]:
    """The inner tables that a key may hold."""
    leaves = _leaves(field.annotation)
    return (each for each in leaves if isinstance(each, type) and issubclass(each, SpecTable))


def _leaves(annotation: Any) -> Iterator[Any]:
    arguments = get_args(annotation)
    if get_origin(annotation) in (Annotated, Union, UnionType, tuple, dict):
        for argument in arguments:
            yield from _leaves(argument)
    else:
        yield annotation


def _words(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is not RewardPart and RewardPart in _leaves(annotation):
        return "[reward](rewards.md#tables)"
    if origin is Annotated:
        return _words(arguments[0]) + _limits(arguments[1:])
    if {str, int, float, bool} <= {*arguments}:
        return "value"
    if origin in (Union, UnionType):
        return " or ".join(_words(a) for a in arguments if a is not type(None))
    if origin is Literal:
        return ", ".join(f"`{inline(choice)}`" for choice in arguments)
    if origin is tuple:
        size = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return f"[{size}{_words(arguments[0])}]"
    if origin is dict:
        return "table" if arguments[1] is Any else f"table of {_words(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, SpecTable):
        return f"[{name_of(annotation)}](#{name_of(annotation).lower()})"
    return _WORDS[annotation]


def _limits(metadata: Any) -> str:
    """Bounds in signs, but for huge ones, which only catch slips of the hand."""
    bounds = [bound for item in metadata for bound in getattr(item, "metadata", [item])]
    limits = [(sign, getattr(b, key, None)) for b in bounds for key, sign in _BOUNDS.items()]
    return ",".join(f"{sign}{v:g}" for sign, v in limits if v is not None and abs(v) < 1e4)


def name_of(table: type) -> str:
    """A table as users read it: `ClipSpec` is Clip."""
    return table.__name__.removesuffix("Spec")


if __name__ == "__main__":
    print(reference(), end="")
