"""For mkdocs: examples of docstrings, which begin with `>>>`, are code; Markdown would take them for quotations."""

from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor


class Examples(Preprocessor):
    """Put a fence around every run of lines from `>>>` to the next empty one."""

    def run(self, lines: list[str]) -> list[str]:
        found, inside = [], False
        for line in lines:
            if not inside and line.startswith(">>> "):
                found += ["```pycon"]
                inside = True
            elif inside and not line.strip():
                found += ["```"]
                inside = False
            found.append(line)
        return [*found, "```"] if inside else found


class ExampleBlocks(Extension):
    """Before fences are read."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name that Markdown calls
        md.preprocessors.register(Examples(md), "examples", 100)


def on_config(config: Any) -> Any:
    """Called by mkdocs."""
    config["markdown_extensions"].append(ExampleBlocks())
    return config
