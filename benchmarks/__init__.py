"""Measures what the project claims: see ``python -m benchmarks --help``. The tests' modules can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
