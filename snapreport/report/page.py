"""The HTML document around summary and blobs."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from snapreport.errors import SnapshotError
from snapreport.report.payload import Payload
from snapreport.report.summary import Summary

_PACKAGE = Path(__file__).resolve().parent.parent


def render_page(summary: Summary, payload: Payload) -> bytes:
    """The whole document as UTF-8.

    Strings of the snapshot pass through jinja2's autoescape; blobs and the application cannot close their elements
    (the blobs by their alphabet, the application by a check). Lone surrogates, which UTF-8 cannot hold, become
    U+FFFD in the static text; the blobs keep them.
    """
    script, style = _asset("app.js"), _asset("app.css")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{digest}' blob: 'wasm-unsafe-eval'",
            "worker-src blob:",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    text = _environment().get_template("report.html.j2").render(
        summary=summary, payload=payload, policy=policy, script=Markup(script), style=Markup(style)
    )
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode("utf-8")


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folder() / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _folder() -> Path:
    """Templates lie inside the installed package; in a checkout they lie beside it."""
    installed = _PACKAGE / "_page"
    return installed if installed.is_dir() else _PACKAGE.parent


@cache
def _asset(name: str) -> str:
    folder = _folder()
    path = folder / name if folder.name == "_page" else folder / "static" / "dist" / name
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SnapshotError(f"{name}: the page's application is not built; install the package, or run node static/build.mjs") from None
    # What ends or reopens a script element early (HTML standard, "restrictions for contents of script elements").
    if any(stop in text.lower() for stop in ("</script", "</style", "<!--")):
        raise SnapshotError(f"{name}: the built page holds text that would end its own element")
    return text
