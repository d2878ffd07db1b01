import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bertflow

SOURCE = Path(bertflow.__file__).parent

# The house's floors, from the ground up; imports point down, or to a room on the same floor without going in circles.
FLOORS: list[set[str]] = [
    {"version", "errors", "arrays", "moments", "texts", "data"},
    {"storage"},
    {"flows", "encoders"},
    {"calibrators", "runtime"},
    {"parts"},
    {"recipes", "saving"},
    {"model"},
    {"evaluation", "scale", "corpus"},
    set(),  # every room not named here, such as integrations: it stands on the model, and only the cli on it
    {"cli"},
    {"__main__"},
]
OTHERS = FLOORS.index(set())
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
MOST_MODULES = 8  # on the ground floor: a newcomer sees the rooms at a glance


def room_of(module: str) -> str:
    """``bertflow.flows.glow`` is in the room ``flows``."""
    return module.split(".")[1]


def for_type_checkers_alone(tree: ast.AST) -> set[ast.AST]:
    """What stands under ``if TYPE_CHECKING:``: nothing is imported there when the program runs."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {node for block in blocks for statement in block.body for node in ast.walk(statement)}


def imported_rooms(file: Path) -> set[str]:
    """Rooms that a file imports from anywhere in its text, functions included."""
    rooms = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    ignored = for_type_checkers_alone(tree)
    for node in ast.walk(tree):
        if node in ignored:
            continue
        if isinstance(node, ast.Import):
            rooms |= {room_of(alias.name) for alias in node.names if alias.name.startswith("bertflow.")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively, which hides the arrow."
            if node.module == "bertflow":
                rooms |= {alias.name for alias in node.names}
            elif node.module and node.module.startswith("bertflow."):
                rooms.add(room_of(node.module))
    return rooms


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    """For each room the other rooms that it imports."""
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts != ("__init__",):
            found.setdefault(parts[0], set()).update(imported_rooms(file) - {parts[0]})
    return found


def test_imports_point_down(arrows):
    pairs = [(room, other) for room, others in arrows.items() for other in others]
    assert len(pairs) > 20
    assert not [(room, other) for room, other in pairs if FLOOR.get(other, OTHERS) > FLOOR.get(room, OTHERS)]


def test_imports_do_not_go_in_circles(arrows):
    reached: dict[str, set[str]] = {}
    for _ in arrows:
        reached = {room: others.union(*(reached.get(o, set()) for o in others)) for room, others in arrows.items()}
    assert not [room for room, others in reached.items() if room in others]


def test_the_ground_floor_has_few_modules():
    modules = {file.stem for file in SOURCE.glob("*.py")} - {"__init__", "__main__", "version"}
    assert len(modules) <= MOST_MODULES, sorted(modules)


def test_only_storage_knows_the_disk_format():
    users = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if "import safetensors" in file.read_text(encoding="utf-8")
    }
    # a table of tokens writes the file that it learnt; what runs without torch reads models by itself
    others = {name for name in users if not name.startswith(("storage/", "runtime/"))}
    assert others <= {"encoders/token_table.py"}
    assert users


def run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    path = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n"
    result = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


def test_importing_is_light():
    heavy = "{'torch', 'transformers', 'sentence_transformers', 'sklearn', 'scipy', 'pandas', 'numpy'}"
    code = f"import bertflow; bertflow.InputError, dir(bertflow); print(sorted({heavy} & set(sys.modules)))"
    assert run(code) == "[]"


def test_no_room_needs_transformers_before_it_is_used():
    """They take seconds to import; a command that fails at once should not wait for them."""
    code = """
import bertflow
for name in bertflow.__all__:
    getattr(bertflow, name)
import bertflow.evaluation, bertflow.storage.model_folder, bertflow.report.demo
print(sorted({"transformers", "sentence_transformers"} & set(sys.modules)))
"""
    assert run(code) == "[]"


@pytest.mark.parametrize("name", bertflow.__all__)
def test_every_public_name_resolves(name):
    assert getattr(bertflow, name) is not None


def test_the_lists_of_public_names_agree():
    assert sorted(bertflow.__all__) == sorted([*bertflow._HOME, "__version__"])
    assert dir(bertflow) == sorted(bertflow.__all__)
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen_by_type_checkers = {alias.name: node.module for node in typed.body for alias in node.names}
    assert seen_by_type_checkers == bertflow._HOME


def test_star_import_gives_the_public_names():
    names: dict[str, object] = {}
    exec("from bertflow import *", names)
    assert set(bertflow.__all__) <= set(names)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'bertflow' has no attribute 'Bertflow'"):
        _ = bertflow.Bertflow
    assert not hasattr(bertflow, "flow")


def test_type_hints_are_promised():
    assert (SOURCE / "py.typed").is_file()
