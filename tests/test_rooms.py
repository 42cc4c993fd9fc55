"""The architecture as a test: every file has a floor and imports only from floors below."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "thiele"

# From bottom to top. A room is a file or a folder; inside a folder, files may import one another.
ROOMS = (
    "precision",
    "programs",
    "durations",
    "parameters",
    "priors",
    "one_function",
    "small",
    "slopes",
    "definite",
    "tables",
    "runs",
    "sums",
    "sde",
    "spatial",
    "kernels",
    "chain",
    "steps",
    "weights",
    "even",
    "axes",
    "calendars",
    "series",
    "seasons",
    "events",
    "hills",
    "tilted",
    "quadrature",
    "likelihoods",
    "rules",
    "projections",
    "tiles",
    "segments",
    "bridges",
    "mixtures",
    "own_sites",
    "values",
    "energies",
    "tied",
    "inducing",
    "sequence",
    "filtered",
    "posterior",
    "inference",
    "mean",
    "exact",
    "approximate",
    "placement",
    "training",
    "learn",
    "starts",
    "search",
    "schedules",
    "prediction",
    "fit",
    "model",
    # What a fit offers to people; `Fit` reaches up to these when it is asked.
    "archives",
    "store",
    "streaming",
    "forecast",
    "left_out",
    "checks",
    "summary",
    "automatic",
    "together",
    "panel",
    "panel_store",
    "reading",
)
# Leaves may import any room, and nothing imports them.
LEAVES = ("data", "dense", "dense_sites", "dense_sparse", "plot", "report", "cli", "sklearn", "demo")
# But for these, inside a function: the library behind them is loaded when it is used.
LAZY = {
    "fit": {"plot", "report", "store", "streaming", "forecast", "left_out", "checks", "summary"},
    "model": {"automatic"},
    "panel": {"panel_store"},
}
# The demonstration is a user's program: it may use everything.
PROGRAMS = {"demo", "cli"}
# The front door: `import thiele` binds the public names.
FRONT = "__init__"
HEAVY = ("pandas", "polars", "xarray", "pyarrow", "matplotlib", "sklearn", "typer", "scipy.optimize", "scipy.stats")


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """The rooms that a file imports, each with whether that happens inside a function; "" is `thiele` itself."""
    inside = set()
    tree = ast.parse(path.read_text(), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside |= {id(child) for child in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write imports in full, `from thiele.room import name`"
            # `from thiele import plot` names a room; `from thiele.kernels import Matern32` names things in one.
            names = [f"thiele.{a.name}" for a in node.names] if node.module == "thiele" else [node.module or ""]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "thiele":
                found.append((parts[1] if len(parts) > 1 else "", id(node) in inside))
    return found


FILES = sorted(SOURCE.rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_file_has_a_place_in_the_list(path):
    assert room_of(path) in (*ROOMS, *LEAVES, FRONT), (
        f"{named(path)} is in no room: add {room_of(path)!r} to ROOMS or LEAVES in tests/test_rooms.py, "
        "at the height where its imports allow it, and to the map in CONTRIBUTING.md"
    )


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) in ROOMS], ids=named)
def test_a_room_imports_only_from_rooms_below(path):
    room = room_of(path)
    below = set(ROOMS[: ROOMS.index(room)])
    for other, in_function in imports(path):
        if other == room or (in_function and other in LAZY.get(room, ())):
            continue
        assert other in below, f"{named(path)} imports thiele.{other}, which is " + (
            "a leaf" if other in LEAVES else "the front door" if not other else "not below it"
        )


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) in LEAVES], ids=named)
def test_a_leaf_imports_no_other_leaf(path):
    leaf = room_of(path)
    if leaf in PROGRAMS:
        pytest.skip(f"{leaf} is a program")
    for other, _ in imports(path):
        assert other in (leaf, *ROOMS), f"{named(path)} imports thiele.{other or '__init__'}"


def fresh(program: str) -> str:
    """What `program` prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_thiele_leaves_the_settings_of_jax_alone():
    # The values that jax itself sets up on import are taken after its own import.
    program = "import jax; before = dict(jax.config.values); import thiele; print(dict(jax.config.values) == before)"
    assert fresh(program) == "True"


def test_importing_thiele_loads_no_heavy_library():
    program = f"import sys, thiele; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert fresh(program) == "[]"


def test_importing_thiele_starts_no_device():
    program = "import thiele; from jax._src import xla_bridge as bridge; print(bridge.backends_are_initialized())"
    assert fresh(program) == "False"
