"""Tests of the doors to other tools."""
