"""Write the page's types and the list of all keys again: ``python -m snapreport.schemas``, in a checkout's root."""

from __future__ import annotations

from pathlib import Path

from snapreport.schemas.documents import generated

for path, content in generated(Path.cwd()).items():
    path.write_text(content, "utf-8")
