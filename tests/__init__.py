"""A package, so that `tests` means this folder whatever else is installed."""
