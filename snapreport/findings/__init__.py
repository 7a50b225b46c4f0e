"""Findings: causes of a peak, leaks, failures, fragmentation, and advice that was replayed."""
