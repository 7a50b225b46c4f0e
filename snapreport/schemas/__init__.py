"""The JSON Schemas of what the commands print, generated from ``snapreport/contracts``; see ``documents.py``."""
