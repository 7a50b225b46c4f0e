"""A shared beginning for brotli streams: small blobs compress against text that every report holds once.

Brotli can be primed with a dictionary, but decoders in browsers cannot. So the known text goes in front as ordinary
data: the encoder compresses it, flushes to a byte boundary, and compresses the blob behind it. What comes out before
the flush is the same every time, so it stands in the page once, and a blob holds only what follows. The decoder puts
the two together, which any brotli decoder reads, and drops the first ``len(text)`` bytes. On a snapshot of 110 KB this
takes a quarter off the report's data.
"""

from __future__ import annotations

import brotli


class Prime:
    """A shared beginning. ``text``: what blobs are likely to repeat; ``stream``: the first bytes of every primed
    stream.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        # Compressing the text takes most of a small report's time; the first compressor goes on with the first blob.
        self._ready: brotli.Compressor | None
        self._ready, self.stream = self._begin()

    def _begin(self) -> tuple[brotli.Compressor, bytes]:
        compressor = brotli.Compressor(quality=11, lgwin=24)
        return compressor, compressor.process(self.text) + compressor.flush()

    def compress(self, data: bytes) -> bytes:
        """The bytes that follow :attr:`stream` in the brotli stream of ``text + data``."""
        compressor, self._ready = self._ready or self._begin()[0], None
        stream: bytes = compressor.process(data) + compressor.finish()
        return stream
