"""`python -m thiele.cli`."""

from thiele.cli import main

main()
