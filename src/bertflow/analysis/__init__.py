"""The geometry of embeddings, ours or anyone's: takes arrays, never encoders or calibrators."""
