"""Queries over allocations, with the same grammar on the page and in Python: ``grammar`` parses, ``evaluate``
answers.
"""
