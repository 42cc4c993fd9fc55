"""Columns of a CSV or Parquet file as times and values; errors name the file, the column, the line and the way out."""

from thiele.reading.choosing import TIME_NAMES, Chosen, choose
from thiele.reading.dates import times
from thiele.reading.files import Problem, Table, read
from thiele.reading.numbers import numbers

__all__ = ["TIME_NAMES", "Chosen", "Problem", "Table", "choose", "numbers", "read", "times"]
