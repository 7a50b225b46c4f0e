"""From snapshots to one HTML file."""
