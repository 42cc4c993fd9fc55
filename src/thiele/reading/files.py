"""CSV and Parquet files as columns by name; errors name the file and the line."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple


class Problem(Exception):
    """Something about a file that its owner can put right; the message says what and how."""


class Table(NamedTuple):
    """Columns by name: text as it stands in a CSV file, arrays from Parquet; and the line of the first row."""

    path: Path
    columns: dict[str, Any]
    first_line: int
    decimal_comma: bool = False

    @property
    def rows(self) -> int:
        """How many."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def where(self, row: int) -> str:
        """A row as its owner finds it."""
        return f"line {row + self.first_line}" if self.first_line else f"row {row + 1}"

    def column(self, name: str, role: str) -> Any:
        """A column by its name, or a word on which there are."""
        if name not in self.columns:
            near = [c for c in self.columns if c.lower() == name.lower()]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise Problem(f"{self.path} has no column {name!r} for the {role}; it has {listed(self.columns)}{hint}")
        return self.columns[name]


def listed(names: Any) -> str:
    """Names as they are shown in an error."""
    return ", ".join(repr(name) for name in names)


def read(path: str | Path) -> Table:
    """The columns of a file; what it is follows from its name."""
    path = Path(path)
    if not path.exists():
        raise Problem(f"{path} does not exist")
    if path.is_dir():
        raise Problem(f"{path} is a folder, not a file")
    if path.stat().st_size == 0:
        raise Problem(f"{path} is empty")
    table = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)
    if table.rows == 0:
        raise Problem(f"{path} has a header ({listed(table.columns)}) but no rows")
    return table


def _csv(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        text = path.read_text(encoding="latin-1")
        if "\x00" in text:
            raise Problem(f"{path} is no text: thiele reads CSV and Parquet files (ending .parquet)") from None
    head = text.lstrip().splitlines()
    if not head:
        raise Problem(f"{path} is empty")
    delimiter = max(",;\t|", key=head[0].count)
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    top = next(i for i, row in enumerate(rows) if any(cell.strip() for cell in row))
    names = [cell.strip() for cell in rows[top]]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem(f"{path} has two columns named {twice!r}: rename one of them")
    if all(is_number(name) for name in names):
        raise Problem(
            f"{path} has no header: its first line must name the columns, such as 'time,value'; got {head[0]!r}"
        )
    body = rows[top + 1 :]
    while body and not any(cell.strip() for cell in body[-1]):
        body.pop()
    for i, row in enumerate(body):
        if len(row) > len(names) or (len(row) < len(names) and any(cell.strip() for cell in row)):
            raise Problem(
                f"{path}, line {i + top + 2}: {len(row)} cells where the header has {len(names)}"
                + ("; a comma inside a cell needs quotes around it" if len(row) > len(names) else "")
            )
    full = [row if len(row) == len(names) else [""] * len(names) for row in body]
    columns = {name: [row[k].strip() for row in full] for k, name in enumerate(names)}
    return Table(path, columns, top + 2, decimal_comma=delimiter != ",")


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise Problem(f"{path}: Parquet needs pyarrow, which is not installed: `pip install thiele[cli]`") from error
    try:
        found = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise Problem(f"{path} is no Parquet file: {str(error).splitlines()[0]}") from None
    columns = {}
    for name in found.column_names:
        column = found.column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        kept = (
            pa.types.is_temporal(column.type) or pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        )
        kept = kept or pa.types.is_boolean(column.type)
        columns[name] = column.to_numpy() if kept else ["" if x is None else str(x) for x in column.to_pylist()]
    return Table(path, columns, 0)


def is_number(text: str) -> bool:
    """Whether Python reads it as one."""
    try:
        float(text)
    except ValueError:
        return False
    return True
