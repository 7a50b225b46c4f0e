"""Records memory snapshots of running PyTorch programs.

Light and self-sufficient: needs neither torch nor polars to be imported, and runs in any process that has torch, from
Python 3.9 on, without snapreport's own dependencies.
"""
