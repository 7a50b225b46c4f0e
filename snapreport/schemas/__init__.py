"""The JSON Schemas of what the commands print, generated from ``snapreport/contracts`` when they are asked for."""
