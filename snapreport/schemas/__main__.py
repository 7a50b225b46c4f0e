"""Write the JSON Schemas and the page's types again: ``python -m snapreport.schemas``, in a checkout."""

from __future__ import annotations

from snapreport.schemas.documents import generated

for path, content in generated().items():
    path.write_text(content, "utf-8")
