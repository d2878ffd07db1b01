"""The command line: thin rooms that parse, call one public function, and print a table or JSON."""

from bertflow.cli.app import app, main

__all__ = ["app", "main"]
