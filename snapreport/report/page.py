"""The HTML document around summary and blobs."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import sys
from functools import cache
from pathlib import Path

import brotli
import jinja2
from markupsafe import Markup

from snapreport.errors import SnapshotError
from snapreport.packing import base85
from snapreport.report.page_checksums import page_checksums
from snapreport.report.payload import Payload
from snapreport.report.sentence_html import code_markup, place_markup, sentence_markup
from snapreport.report.summary import Summary
from snapreport.sentence import joined

# Bundles by the name of their blob; the extension gives the compression.
CODE = {"application": "app.js.gz", "views": "views.js.br"}
# Only in reports whose payload has the blob "job".
JOB_CODE = {"jobview": "job.js.br"}
_PACKAGE = Path(__file__).resolve().parent.parent
# Placeholder for the document's own size, at its beginning and end.
_SIZE = b"\0bytes\0"


def render_page(summary: Summary, payload: Payload) -> bytes:
    """The whole document as UTF-8.

    Strings of the snapshot pass through jinja2's autoescape; blobs and the application cannot close their elements
    (the blobs by their alphabet, the application by a check). Lone surrogates, which UTF-8 cannot hold, become
    U+FFFD in the static text; the blobs keep them.

    The code comes before the data: a truncated file shows what it contains.
    """
    is_job = "job" in payload.blobs
    bundles = CODE | JOB_CODE if is_job else CODE
    boot, style = _asset("boot.js"), _asset("app.css") + (_asset("job.css") if is_job else "")
    boot_digest = f"'sha256-{_digest(boot.encode('utf-8'))}'"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join((boot_digest, *_code_digests(tuple(bundles.values()))))} 'wasm-unsafe-eval'",
            "worker-src blob:",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    title = _without_surrogates(f"{summary.title} · memory report")
    body = _without_surrogates(_environment().get_template("body.html.j2").render(summary=summary))
    footer = _environment().get_template("footer.html.j2").render(size=Markup(_SIZE.decode()))
    text = (
        _environment()
        .get_template("document.html.j2")
        .render(
            title=title,
            size=Markup(_SIZE.decode()),
            policy=policy,
            boot=Markup(boot),
            style=Markup(style),
            body=Markup(body),
            footer=Markup(footer),
            # The size is known only at the end; the page compares it with the one at the document's beginning.
            checksums=page_checksums([policy, title, style], body + footer.replace(_SIZE.decode(), "")),
            parts={name: _code(file) for name, file in bundles.items()} | payload.blobs,
        )
    )
    return _sized(text.encode("utf-8"))


def render_plain(template: str, page: object) -> bytes:
    """A page without scripts as UTF-8, in the same style. ``page``: the template's data."""
    text = _environment().get_template(template).render(page=page, style=Markup(_asset("app.css")))
    return _without_surrogates(text).encode("utf-8")


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _sized(document: bytes) -> bytes:
    """The document with its size filled in: before and after everything that contains a snapshot's strings."""
    start, _, rest = document.partition(_SIZE)
    middle, _, end = rest.rpartition(_SIZE)
    size, written = 0, ""
    while written != f"{size:,}":
        written = f"{size:,}"
        size = len(start) + len(middle) + len(end) + 2 * len(written)
    return written.encode().join((start, middle, end))


class _TemplateCode(jinja2.FileSystemBytecodeCache):
    """Compiled templates beside their sources, as Python keeps modules; compiling them takes 0.1 s of each report."""

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):  # not our folder, or a full disk
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def _environment() -> jinja2.Environment:
    templates = _folder() / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        bytecode_cache=_TemplateCode(str(templates / "__pycache__")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = code_markup
    environment.filters["joined"] = joined
    environment.filters["place"] = place_markup
    environment.filters["sentence"] = sentence_markup
    return environment


@cache
def _folder() -> Path:
    """The templates' folder: inside the installed package, next to it in a checkout."""
    installed = _PACKAGE / "_page"
    return installed if installed.is_dir() else _PACKAGE.parent


def _digest(text: bytes) -> str:
    return base64.b64encode(hashlib.sha256(text).digest()).decode("ascii")


@cache
def _code_digests(files: tuple[str, ...]) -> list[str]:
    """Digests of the unpacked bundles: the policy lets nothing else run."""
    unpacked = ((gzip if file.endswith(".gz") else brotli).decompress(_built(file)) for file in files)
    return [f"'sha256-{_digest(code)}'" for code in unpacked]


@cache
def _code(name: str) -> str:
    """A compressed bundle as text."""
    return base85.encode(_built(name))


def _built(name: str) -> bytes:
    folder = _folder()
    path = folder / name if folder.name == "_page" else folder / "static" / "dist" / name
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SnapshotError(
            f"{name}: the page's application is not built; install the package, or run node static/build.mjs"
        ) from None


@cache
def _asset(name: str) -> str:
    text = _built(name).decode("utf-8")
    # Text that ends or reopens a script element early (HTML standard, "restrictions for contents of script elements").
    if any(stop in text.lower() for stop in ("</script", "</style", "<!--")):
        raise SnapshotError(f"{name}: the built page holds text that would end its own element")
    return text
