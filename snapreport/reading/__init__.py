"""From any snapshot file to columns: file types, the restricted unpickler, the layouts of every PyTorch since 2022."""
