"""Benchmarks: one script a question, each beside its peers in one run on one machine."""
