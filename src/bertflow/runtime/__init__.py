"""Saved models without torch: numpy applies them."""
