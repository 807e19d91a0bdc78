"""The house rules that a machine can check, and the tree of docs/architecture.md.

Every rule is shown to catch a violation before it is believed about the repository.
"""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "assay"
FLOORS = (
    *(
        "cli",
        "library",
        "view",
        "serve",
        "labs",
        "pages",
        "lab",
        "trainers",
        "engines",
        "train",
        "compare",
        "runs",
        "experiment",
    ),
    *("agents", "tasks", "rollout", "sandbox", "judge", "rl", "models", "data", "errors"),
)
"""Top to bottom. A package imports itself and what stands below it. What stands above the labs
finds them through `tasks.task`, which imports one by name."""
ROOMS = {
    "lab": (
        "sweep",
        "",
        "synthesise",
        "run",
        "check",
        "evaluate",
        "session",
        "data",
        "models",
        "monitor",
    ),
    "labs": (
        "workflows",
        "workflows.programs",
        "chat",
        "tools",
        "math",
        "demos",
        "worlds",
    ),
    "rollout": ("policies", "engines", "engines.cpu", "engines.endpoint", ""),
    "judge": ("audit", ""),
    "data": ("formats", "renderings", "results", "reported", ""),
}
"""The folders of a package, top to bottom; "" is the package's own files."""
BESIDE = (
    {"tools", "math"},
    {"tools", "demos"},
    {"math", "demos"},
    {"chat", "demos"},
    {"chat", "workflows"},
    {"tools", "workflows"},
    {"chat", "tools"},
    {"chat", "math"},
    {"engines.cpu", "engines.endpoint"},
    {"results", "reported"},
)
"""Rooms on one height, which do not know each other."""
WITHOUT_TORCH = ("runs", "compare", "judge", "pages", "experiment")
MODULES = sorted(SOURCE.rglob("*.py"))
LABS = {file.parent.name for file in SOURCE.glob("labs/*/__init__.py")}
NAMES = {
    ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts): file
    for file in MODULES
    if file.name != "__init__.py"
}
PYTHON = [
    *MODULES,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "benchmarks").rglob("*.py")),
]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SETTINGS = [ROOT / "Makefile", ROOT / ".ci" / "run", *ROOT.glob("*.toml"), *ROOT.glob("*.txt")]
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.toml"))
DRESS = [*SOURCE.rglob("*.jinja"), *SOURCE.rglob("*.css"), *SOURCE.rglob("*.toml")]
TEXTS = sorted({*PYTHON, *PAGES, *SETTINGS, *EXPERIMENTS, *DRESS} - {Path(__file__).resolve()})
MOST_LINES = 600

LANGUAGE_MODELS = re.compile(r"\b(PreTrainedModel|PeftModel|Language(Policy|Learner|Encoder))\b")
HANDLING = re.compile(r"\n *except\b")
THEIR_OWN = ("models/", "rollout/policies/", "lab/models/language_learner")
"""Where a language model is implemented; all else works with any learner."""

FORBIDDEN = {
    "how the text was written": r"\b(claude(?!-\d)|anthropic|chatgpt|copilot|co-authored-by)\b"
    r"|\b(written|generated) by an? (ai|llm|agent|assistant|model)\b",
    "unfinished work": r"\b(TODO|FIXME|XXX)\b|\bfor now\b|\bplaceholder\b",
    "a path of one machine": r"(?<![\w.~}])/(work|root|home)/\S",
    "a host of packages or models": r"pypi\.org|pythonhosted\.org|huggingface\.co|hf-mirror"
    r"|artifactory|--(extra-)?index-url",
}

Places = list[str]


@functools.lru_cache(maxsize=1)
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


@functools.lru_cache(maxsize=1)
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes, listed once for all checks of a file."""
    return tuple(ast.walk(tree))


def floor_of(file: Path) -> str:
    """The package that a module belongs to: "rl", or "errors" for src/assay/errors.py."""
    return file.relative_to(SOURCE).with_suffix("").parts[0]


@functools.lru_cache(maxsize=1)
def imported(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Line and full name of every import, those inside functions and type-checking blocks too."""
    return tuple(imports_in(nodes(tree)))


def imports_in(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "assay.(relative)"
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Call) and called(node).endswith("import_module"):
            literal = node.args[0] if node.args else None
            if isinstance(literal, ast.Constant):
                yield node.lineno, str(literal.value)


def called(node: ast.Call) -> str:
    """The dotted name that is called; it begins with a dot where that belongs to no name."""
    parts, function = [], node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join([function.id if isinstance(function, ast.Name) else "", *reversed(parts)])


def upward_imports(tree: ast.Module, floor: str) -> Places:
    """Imports of assay packages that do not stand below `floor`; the bare package holds nothing."""
    allowed = {floor, *FLOORS[FLOORS.index(floor) + 1 :]}
    inner = [(line, name.split(".")[1:]) for line, name in imported(tree) if is_assay(name)]
    return [f"{line}: {'.'.join(path)}" for line, path in inner if path and path[0] not in allowed]


def room_of(module: str) -> str:
    """The room of a module of a package that has rooms: "data" for "assay.lab.data.prepare"."""
    rooms, folders = ROOMS[module.split(".")[1]], module.split(".")[2:-1]
    names = (".".join(folders[:length]) for length in range(len(folders), -1, -1))
    return next(name for name in names if name in rooms)


def imports_of(file: Path) -> dict[str, int]:
    """The modules of the house that a module imports, wherever in it, each with a line."""
    found = {}
    for line, name in imported(parsed(file)):
        parts = name.split(".")
        known = (".".join(parts[:length]) for length in (len(parts), len(parts) - 1))
        module = next((each for each in known if each in NAMES), "")
        if module:
            found[module] = line
    return found


def wrong_rooms(module: str, others: dict[str, int]) -> Places:
    """Imports of rooms of the same package that do not stand below the module's own."""
    package = module.split(".")[1]
    inside = {o: line for o, line in others.items() if o.split(".")[1] == package}
    rooms, own = ROOMS[package], room_of(module)
    wrong = []
    for other, line in inside.items():
        room = room_of(other)
        if rooms.index(room) < rooms.index(own) or {room, own} in BESIDE:
            wrong.append(f"{line}: {other}")
    return wrong


def is_assay(name: str) -> bool:
    return name.split(".")[0] == "assay"


def undocumented(tree: ast.Module) -> Places:
    """The module, public classes, functions and methods without a docstring."""
    found = [] if ast.get_docstring(tree) else ["1: the module"]
    bodies: list[list[ast.stmt]] = [tree.body]
    for body in bodies:
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                found.append(f"{node.lineno}: {node.name}")
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
    return found


def swallowed(tree: ast.Module) -> Places:
    """Handlers that catch everything and do nothing about it."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.ExceptHandler) and catches_all(node.type):
            idle = (ast.Pass, ast.Continue)
            if all(isinstance(s, idle) or is_ellipsis(s) for s in node.body):
                found.append(f"{node.lineno}: except that does nothing")
        if isinstance(node, ast.Call) and called(node).split(".")[-1] == "suppress":
            found += [f"{node.lineno}: suppress" for kind in node.args if catches_all(kind)]
    return found


def catches_all(kind: ast.expr | None) -> bool:
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(n is None or ast.unparse(n) in ("Exception", "BaseException") for n in names)


def is_ellipsis(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement) == "..."


def evaluated(tree: ast.Module) -> Places:
    """Calls that run text as code or unpickle it."""
    calls = [node for node in nodes(tree) if isinstance(node, ast.Call)]
    return [f"{call.lineno}: {called(call)}" for call in calls if runs_text(call)]


def runs_text(call: ast.Call) -> bool:
    name = called(call).removeprefix("builtins.")
    if name == "torch.load":
        safe = [k for k in call.keywords if k.arg == "weights_only"]
        return not any(ast.unparse(k.value) == "True" for k in safe)
    return name in ("eval", "exec", "pickle.load", "pickle.loads")


def language_models_asked_for(tree: ast.Module) -> Places:
    """Places that ask of a value whether it is a language model."""
    asked = []
    for node in nodes(tree):
        if isinstance(node, ast.Call) and called(node) in ("isinstance", "issubclass"):
            asked.append((node.lineno, ast.unparse(node.args[1])))
        if isinstance(node, ast.MatchClass):
            asked.append((node.lineno, ast.unparse(node.cls)))
    return [f"{line}: {kind}" for line, kind in asked if LANGUAGE_MODELS.search(kind)]


@functools.cache
def checked() -> dict[str, dict[Path, Any]]:
    """What each check finds in the files that it looks at, by its name; each file is parsed once,
    and looked through where its text holds the words that a check needs."""
    found: dict[str, dict[Path, Any]] = defaultdict(dict)
    for file in PYTHON:
        text = file.read_text(encoding="utf-8")
        handles = "suppress" in text or HANDLING.search(text)
        found["swallowed"][file] = swallowed(parsed(file)) if handles else []
        if text and not text.startswith('"""') and not ast.get_docstring(parsed(file)):
            found["silent"][file] = ["1: no docstring"]
        if not file.is_relative_to(SOURCE):
            continue
        tree = parsed(file)
        inner = file.relative_to(SOURCE).as_posix()
        found["imports"][file] = imports_of(file)
        if file.parent != SOURCE or file.name == "errors.py":
            found["upward"][file] = upward_imports(tree, floor_of(file))
        for lab, pattern in LAB_NAMES.items():
            if not inner.startswith((f"labs/{lab}/", *FILE_TABLES)):
                found[lab][file] = lab_names(tree, pattern) if pattern.search(text) else []
        if file.stat().st_size:
            found["undocumented"][file] = undocumented(tree)
        if floor_of(file) != "sandbox":
            found["evaluated"][file] = evaluated(tree)
        if not inner.startswith(THEIR_OWN) and LANGUAGE_MODELS.search(text):
            found["language"][file] = language_models_asked_for(tree)
    return found


def expect_none(places: dict[Path, Places]) -> None:
    """Fail with every violation on a line of its own, as file:line: what."""
    lines = [f"{file.relative_to(ROOT)}:{p}" for file, found in places.items() for p in found]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def test_every_package_stands_on_a_floor() -> None:
    names = {floor_of(file) for file in MODULES} - {"__init__"}
    assert names == set(FLOORS)


def test_a_wheel_holds_every_file_of_the_package() -> None:
    """A checkout has them all, so that an editable installation hides one that is left out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["assay"]
    packed = {file for pattern in patterns for file in SOURCE.glob(pattern)}
    files = {
        file for file in SOURCE.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    }
    assert files - packed == set(MODULES)


def test_the_manual_draws_the_tree_that_is_there() -> None:
    """Its floors in their order, and the folders of `lab` and `data` that it names."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert tuple(line.split()[0].removesuffix("/") for line in tree) == FLOORS
    named = {line.split()[0]: set(re.findall(r"(\w+)/", line.partition(" ")[2])) for line in tree}
    assert named["lab/"] == {room.partition(".")[0] for room in ROOMS["lab"] if room}
    assert named["data/"] == set(ROOMS["data"]) - {""}
    paths = re.findall(r"`(\w+/[\w/]+\.(?:py|toml))`", page.partition("## Where")[2])
    assert paths and not [path for path in paths if not (SOURCE / path).exists()]


def test_the_bare_package_loads_nothing_but_python() -> None:
    """Asked in a process of its own; what an import needs of the standard library is its own."""
    code = """
import sys
before = set(sys.modules)
import assay
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - sys.stdlib_module_names == {"assay"}


def test_imports_point_downwards() -> None:
    expect_none(checked()["upward"])


def test_every_folder_of_a_package_with_rooms_is_one() -> None:
    for package, rooms in ROOMS.items():
        found = {room_of(name) for name in NAMES if name.startswith(f"assay.{package}.")}
        assert found == set(rooms)


def test_imports_point_downwards_between_the_rooms_of_a_package() -> None:
    own = {name: file for name, file in NAMES.items() if name.split(".")[1] in ROOMS}
    expect_none({file: wrong_rooms(name, checked()["imports"][file]) for name, file in own.items()})


def test_an_import_from_a_room_above_or_beside_is_seen() -> None:
    assert wrong_rooms("assay.lab.session.session", {"assay.lab.run.runner": 3})
    assert wrong_rooms("assay.lab.monitor.progress", {"assay.lab.sweep.model": 3})
    assert wrong_rooms("assay.labs.demos.task", {"assay.labs.workflows.task": 3})
    assert wrong_rooms("assay.labs.tools.task", {"assay.labs.math.task": 3})
    below = {"assay.lab.session.session": 3, "assay.lab.run.runner": 4, "assay.train.loop": 5}
    assert not wrong_rooms("assay.lab.run.runner", below)


LAB_NAMES = {
    "demos": re.compile(
        r"demos|selector_\w+|SELECTOR\w*|\w*Selector[A-Z]?\w*|\w*[Dd]emonstration\w*"
    )
}
"""How the identifiers of a lab are called."""
FILE_TABLES = ("experiment/", "tasks/task.py")
"""The tables of the experiment file, all in one place, and the register of tasks."""


def lab_names(tree: ast.Module, pattern: re.Pattern[str]) -> Places:
    """Identifiers and imports of a lab in a module."""
    found = []
    for node in nodes(tree):
        fields = ("id", "attr", "name", "arg", "module")
        named = [value for f in fields if isinstance(value := getattr(node, f, None), str)]
        parts = [part for value in named for part in value.split(".")]
        found += [
            f"{getattr(node, 'lineno', 0)}: {part}" for part in parts if pattern.fullmatch(part)
        ]
    return found


@pytest.mark.parametrize("lab", LAB_NAMES)
def test_no_name_of_a_lab_stands_outside_its_folder(lab: str) -> None:
    """A lab is one folder and one line in `TASKS`."""
    expect_none(checked()[lab])


def test_a_name_of_a_lab_is_seen() -> None:
    pattern = LAB_NAMES["demos"]
    for text in ("from assay.labs.demos import task", "x = SelectorSpec()", "f(demonstrations=1)"):
        assert lab_names(ast.parse(text), pattern)
    assert not lab_names(ast.parse("selectors(session, stage)"), pattern)


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter({name: checked()["imports"][file] for name, file in NAMES.items()}).prepare()


def test_records_are_read_compared_and_shown_without_torch() -> None:
    """Asked in a process of its own: this one may have loaded it."""
    light = [name for name in NAMES if name.split(".")[1] in WITHOUT_TORCH]
    code = f"""
import sys
from importlib import import_module
for name in {light!r}:
    import_module(name)
    assert "torch" not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "from assay.lab.session.session import Session",
        "def f():\n    from assay.cli.main import app",
        "import_module('assay.pages.run_page')",
    ],
)
def test_an_import_from_above_is_seen_wherever_it_hides(text: str) -> None:
    assert upward_imports(ast.parse(text), "rl")
    assert upward_imports(ast.parse("from assay.labs.demos.task import TASK"), "lab")
    assert not upward_imports(ast.parse("from assay.lab.session.session import Session"), "labs")
    below = "from assay.rl.kl import k1\nfrom assay.models.load import load_model\nimport torch"
    assert not upward_imports(ast.parse(below), "rl")


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in PYTHON}
    expect_none({f: [f"{n}: lines"] for f, n in lengths.items() if n > MOST_LINES})


def test_modules_and_what_they_offer_have_docstrings() -> None:
    empty = {file for file in MODULES if not file.read_text(encoding="utf-8").strip()}
    assert all(file.name == "__init__.py" for file in empty)
    expect_none(checked()["undocumented"])


def test_test_modules_and_programs_say_what_they_are_for() -> None:
    expect_none(checked()["silent"])


def test_a_missing_docstring_is_seen() -> None:
    assert undocumented(ast.parse("def f(): pass")) == ["1: the module", "1: f"]
    assert undocumented(ast.parse('"""."""\nclass C:\n "."\n def m(self): 1')) == ["4: m"]
    assert not undocumented(ast.parse('"""."""\ndef _f(): pass\nclass _C:\n def m(self): 1'))


def test_nothing_is_caught_to_be_ignored() -> None:
    expect_none(checked()["swallowed"])


@pytest.mark.parametrize("what", ["", "Exception", "(KeyError, Exception)"])
@pytest.mark.parametrize(
    "then",
    [
        "pass",
        "...",
    ],
)
def test_a_swallowed_exception_is_seen(what: str, then: str) -> None:
    text = f"for i in x:\n  try: f()\n  except {what}: {then}"
    assert swallowed(ast.parse(text))
    assert swallowed(ast.parse("with contextlib.suppress(Exception): f()"))
    assert not swallowed(ast.parse("try: f()\nexcept Exception as e: g(e)"))


def test_no_text_is_run_as_code_outside_the_sandbox() -> None:
    expect_none(checked()["evaluated"])


@pytest.mark.parametrize("text", ["eval(x)", "pickle.loads(x)", "torch.load(f)"])
def test_running_text_as_code_is_seen(text: str) -> None:
    assert evaluated(ast.parse(text))
    assert not evaluated(ast.parse("model.eval(); torch.load(f, weights_only=True)"))


def test_nothing_asks_whether_a_learner_is_a_language_model() -> None:
    expect_none(checked()["language"])


@pytest.mark.parametrize(
    "text",
    ["isinstance(x, PreTrainedModel | PeftModel)", "match x:\n  case LanguagePolicy():\n    f()"],
)
def test_asking_for_a_language_model_is_seen(text: str) -> None:
    assert language_models_asked_for(ast.parse(text))
    assert not language_models_asked_for(ast.parse("isinstance(x, Sized)"))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_text_of_the_repository_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what], re.IGNORECASE)
    places = {
        file: [
            f"{number}: {found[0]!r}"
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
            if (found := pattern.search(line))
        ]
        for file in TEXTS
    }
    expect_none(places)


def test_the_forbidden_texts_are_recognised() -> None:
    examples = {
        "how the text was written": "# Generated by an LLM",
        "unfinished work": "# todo: mend",
        "a path of one machine": "open('/root/.cache/x')",
        "a host of packages or models": "pip install --index-url x",
    }
    for what, text in examples.items():
        assert re.search(FORBIDDEN[what], text, re.IGNORECASE)
