"""Encoders out of package registries, as transformers opens them: the work behind ``results/encoders.py``."""
