"""Builds one HTML file from snapshots."""
