"""What the README and the pages show runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / name
        for name in ("precision.md", "sparse.md", "results.md", "automatic.md", "sklearn.md", "index.md")
    ),
]
PROGRAMS = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("docs/*.py")])
TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))
LINKED = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *TUTORIALS])


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


# But for the first of the README, which is an example.
BLOCKS = {f"{page.name} {i}": block for page in PAGES for i, block in enumerate(python_blocks(page))}
del BLOCKS["README.md 0"]
# Most of these is compilation, of things that other tests compile too.
LONG = ("results.md 0", "automatic.md 0", "sklearn.md 0", "index.md 0")


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "block", [pytest.param(b, id=name, marks=pytest.mark.slow if name in LONG else ()) for name, b in BLOCKS.items()]
)
def test_every_block_of_python_runs(block, tmp_path):
    run(["-c", block], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.name)
def test_every_tutorial_runs_from_top_to_bottom(page, tmp_path):
    assert run(["-c", "\n".join(python_blocks(page))], tmp_path)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    run(
        ["-m", "mkdocs", "build", "--quiet", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)],
        ROOT,
    )
    for page in [*ROOT.glob("docs/*.md"), *TUTORIALS]:
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    reference = (tmp_path / "api.html").read_text()
    assert "QuasiPeriodic" in reference
    assert '<span class="gp">&gt;&gt;&gt; </span>' in reference  # examples are code, not quotations


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_example_runs(program, tmp_path):
    assert run([str(program)], tmp_path)


def test_the_ten_lines_are_the_example():
    assert python_blocks(ROOT / "README.md")[0] == (ROOT / "examples" / "quickstart.py").read_text()


@pytest.mark.parametrize("page", LINKED, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.slow
def test_the_demonstration_runs_and_says_what_it_found_and_where_its_figures_are(tmp_path):
    said = run(["-m", "thiele.demo"], tmp_path)
    # Jarrett's data: the rate fell by more than half around 1890.
    assert "it fell fastest around 1890" in said
    assert "forecast" in said
    assert "did not converge" not in said
    for name in ("coal", "co2"):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 10_000
        assert f"figures/{name}.png" in said
