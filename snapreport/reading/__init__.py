"""Reads any snapshot file into columns: file types, the restricted unpickler, the layouts of PyTorch since 2022."""
