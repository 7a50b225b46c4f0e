"""Records memory snapshots of running PyTorch programs.

Light and self-contained: importing it needs neither torch nor polars, and it runs in any process that has torch, on
Python 3.9 or later, without snapreport's own dependencies.
"""
