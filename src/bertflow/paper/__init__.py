"""The paper's tables and figures, each a command that prints paper | ours | difference."""
