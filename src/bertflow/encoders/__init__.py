"""Encoders: text in, vectors out, by a frozen language model and a view of it."""
