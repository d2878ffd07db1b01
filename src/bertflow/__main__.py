"""`python -m bertflow`."""

from bertflow.cli import main

main()
