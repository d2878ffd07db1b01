"""Where the mini encoder comes from: text → rows of tokens (prepare) → masked language model (train) → its folder (export)."""
