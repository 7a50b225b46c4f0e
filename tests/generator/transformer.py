"""The memory behaviour of a GPT: parameters, the forward pass with its saved tensors, the backward pass that frees
them.

Weights and gradients are float32; activations are bfloat16 under autocast, whose casts of the weights live until the
forward pass ends. The order of allocations and frees is that of eager PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

from generator.blocks import Block
from generator.device import Device
from generator.options import Options
from generator.recorder import Frames
from generator.sites import STAGES, LayerSites, ModelSites, Site
from generator.stacks import StackBook

FLOAT, HALF, LONG = 4, 2, 8
"""Bytes of float32, bfloat16 and int64."""
CUBLAS_WORKSPACE = 8_519_680
"""Bytes that cuBLAS allocates once, at its first call (`:4096:2:16:8`)."""
LAYER_SAVES = 17
"""Tensors that a layer's forward pass saves for its backward pass."""
COMM_STREAM = 94_107_265_508_736
"""The stream of the collectives; stream handles are pointers, 0 is the default stream."""


@dataclass(slots=True)
class Parameter:
    """A weight with its gradient and the two moments of AdamW; `elements` long."""

    elements: int
    data: Block
    grad: Block | None = None
    moments: tuple[Block, Block] | None = None


class Transformer:
    """The model on one device: `build` allocates the parameters, `forward` and `backward` run one batch.

    A batch has `tokens` in total, its sequences `length` each.
    """

    def __init__(self, device: Device, options: Options, book: StackBook) -> None:
        self.device = device
        self.options = options
        self.sites = ModelSites(book, options.regression_in, options.regression)
        self.weights: dict[str, Parameter] = {}
        self._saved: list[Block] = []
        self._casts: list[Block] = []
        self._workspace: Block | None = None

    def build(self, stack: Frames) -> None:
        """Allocate all parameters, moved to the device at `stack`."""
        hidden, options = self.options.hidden, self.options
        shapes = {"wte": options.vocabulary * hidden, "wpe": options.sequence * hidden}
        for layer in range(options.layers):
            for name, rows, columns in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
                shapes[f"{layer}.{name}.weight"] = rows * columns * hidden * hidden
                shapes[f"{layer}.{name}.bias"] = columns * hidden
            for name in ("norm1", "norm2"):
                shapes[f"{layer}.{name}.weight"] = shapes[f"{layer}.{name}.bias"] = hidden
        shapes["norm.weight"] = shapes["norm.bias"] = hidden
        for name, elements in shapes.items():
            self.weights[name] = Parameter(elements, self.device.alloc(elements * FLOAT, stack))

    def largest_tensor(self, length: int) -> int:
        """Bytes of the tensor that grows fastest with length: eager attention's scores, or the float32 logits."""
        options = self.options
        if options.attention == "eager":
            return options.batch * options.heads * length * length * HALF
        return options.batch * length * options.vocabulary * FLOAT

    def forward(self, tokens: int, length: int) -> None:
        """Run the model and the loss; saves tensors for the backward pass."""
        options, device, sites = self.options, self.device, self.sites
        hidden, wide = options.hidden, tokens * options.hidden * HALF
        embedded = self._out(sites.token, wide)
        position = self._out(sites.position, length * hidden * HALF)
        self._keep(sites.position, wide)
        device.free(position, sites.position.release)
        device.free(embedded, sites.model_free)
        for layer in range(options.layers):
            layer_sites = sites.layers[layer * STAGES // options.layers]
            self._layer(layer_sites, tokens, length)
            if options.checkpointing:
                output = self._saved.pop()
                for _ in range(LAYER_SAVES - 1):
                    device.free(self._saved.pop(), layer_sites.leave)
                self._saved.append(output)
        self._norm(sites.norm_out, tokens)
        logits = self._linear(sites.head, tokens, hidden, options.vocabulary)
        self._drop_casts()
        scores = self._out(sites.to_float, tokens * options.vocabulary * FLOAT)
        device.free(logits, sites.to_float.release)
        self._keep(sites.log_softmax, tokens * options.vocabulary * FLOAT)
        device.free(scores, sites.log_softmax.release)
        self._keep(sites.loss, FLOAT)
        self._keep(sites.loss, FLOAT)

    def backward(self, tokens: int, length: int) -> None:
        """From the loss back to the embeddings: allocates gradients, frees saved tensors."""
        options, device, sites = self.options, self.device, self.sites
        hidden, wide = options.hidden, tokens * options.hidden * HALF
        grad = self.device.alloc(FLOAT, sites.loss.backward)
        grad = self._through(sites.loss, grad, tokens * options.vocabulary * FLOAT, 2)
        grad = self._through(sites.log_softmax, grad, tokens * options.vocabulary * FLOAT, 1)
        grad = self._through(sites.to_float, grad, tokens * options.vocabulary * HALF, 0)
        grad = self._linear_backward(sites.head, grad, wide, "wte", None, 0)
        grad = self._norm_backward(sites.norm_out, grad, wide, "norm")
        for layer in reversed(range(options.layers)):
            stage = layer * STAGES // options.layers
            if options.checkpointing:
                output = self._saved.pop()
                self._layer(sites.recomputed[stage], tokens, length)
                self._drop_casts()
                device.free(output, sites.layers[stage].add2.backward_release)
            grad = self._layer_backward(sites.layers[stage], grad, layer, tokens, length)
            if options.streams > 2:
                self._reduce(12 * hidden * hidden * FLOAT)
        self._release(sites.position, 1)
        self._accumulate("wpe", self.device.alloc(options.sequence * hidden * FLOAT, sites.position.backward))
        self._accumulate("wte", self.device.alloc(options.vocabulary * hidden * FLOAT, sites.token.backward))
        self.device.free(grad, sites.token.backward_release)

    def _out(self, site: Site, size: int) -> Block:
        return self.device.alloc(size * site.scale, site.forward)

    def _keep(self, site: Site, size: int) -> Block:
        block = self.device.alloc(size * site.scale, site.forward)
        self._saved.append(block)
        return block

    def _linear(self, site: Site, rows: int, inputs: int, outputs: int) -> Block:
        self._casts.append(self.device.alloc(inputs * outputs * HALF, site.cast))
        if self._workspace is None:
            self._workspace = self.device.alloc(CUBLAS_WORKSPACE, site.forward)
        return self._out(site, rows * outputs * HALF)

    def _norm(self, site: Site, tokens: int) -> None:
        self._keep(site, tokens * self.options.hidden * HALF)
        self._keep(site, tokens * FLOAT)
        self._keep(site, tokens * FLOAT)

    def _drop_casts(self) -> None:
        """Autocast ends: frees its casts of the weights."""
        self.device.free_all(self._casts, self.sites.cast_free)
        self._casts.clear()

    def _layer(self, sites: LayerSites, tokens: int, length: int) -> None:
        """Forward through one layer; leaves LAYER_SAVES tensors saved, the last of them its output."""
        hidden, wide = self.options.hidden, tokens * self.options.hidden * HALF
        self._norm(sites.norm1, tokens)
        self._saved.append(self._linear(sites.qkv, tokens, hidden, 3 * hidden))
        self._attend(sites, tokens, length)
        self._keep(sites.contiguous, wide)
        projected = self._linear(sites.out, tokens, hidden, hidden)
        self._drop_and_add(sites.dropout1, sites.add1, projected, wide)
        self._norm(sites.norm2, tokens)
        self._saved.append(self._linear(sites.up, tokens, hidden, 4 * hidden))
        self._keep(sites.gelu, 4 * wide)
        projected = self._linear(sites.down, tokens, 4 * hidden, hidden)
        self._drop_and_add(sites.dropout2, sites.add2, projected, wide)

    def _attend(self, sites: LayerSites, tokens: int, length: int) -> None:
        options, device = self.options, self.device
        wide = tokens * options.hidden * HALF
        if options.attention == "flash":
            self._keep(sites.attend, wide)
            self._keep(sites.attend, tokens * options.heads * FLOAT)
            self._keep(sites.attend, 16)
            return
        square = options.batch * options.heads * length * length * HALF
        scores = self._out(sites.scores, square)
        self._keep(sites.softmax, square)
        device.free(scores, sites.softmax.release)
        self._keep(sites.attend, wide)
        self._keep(sites.attend, 16)

    def _drop_and_add(self, dropout: Site, add: Site, projected: Block, wide: int) -> None:
        mask_bytes = wide // HALF
        dropped = self._out(dropout, wide)
        self._keep(dropout, mask_bytes)
        self.device.free(projected, dropout.release)
        self._keep(add, wide)
        self.device.free(dropped, add.release)

    def _layer_backward(self, sites: LayerSites, grad: Block, layer: int, tokens: int, length: int) -> Block:
        wide = tokens * self.options.hidden * HALF
        branch = self._through(sites.dropout2, self.device.alloc(wide, sites.add2.backward), wide, 2)
        branch = self._linear_backward(sites.down, branch, 4 * wide, f"{layer}.down.weight", f"{layer}.down.bias", 1)
        branch = self._through(sites.gelu, branch, 4 * wide, 1)
        branch = self._linear_backward(sites.up, branch, wide, f"{layer}.up.weight", f"{layer}.up.bias", 0)
        branch = self._norm_backward(sites.norm2, branch, wide, f"{layer}.norm2")
        grad = self._join(sites.add2, grad, branch, wide)
        branch = self._through(sites.dropout1, self.device.alloc(wide, sites.add1.backward), wide, 2)
        branch = self._linear_backward(sites.out, branch, wide, f"{layer}.out.weight", f"{layer}.out.bias", 1)
        branch = self._attend_backward(sites, branch, tokens, length)
        branch = self._linear_backward(sites.qkv, branch, wide, f"{layer}.qkv.weight", f"{layer}.qkv.bias", 0)
        branch = self._norm_backward(sites.norm1, branch, wide, f"{layer}.norm1")
        return self._join(sites.add1, grad, branch, wide)

    def _attend_backward(self, sites: LayerSites, grad: Block, tokens: int, length: int) -> Block:
        options, device = self.options, self.device
        wide = tokens * options.hidden * HALF
        if options.attention == "eager":
            square = options.batch * options.heads * length * length * HALF
            first = device.alloc(square, sites.softmax.backward)
            second = device.alloc(square, sites.scores.backward)
            device.free(first, sites.softmax.backward_release)
        else:
            second = device.alloc(tokens * options.heads * FLOAT, sites.attend.backward)
        parts = [device.alloc(wide, sites.attend.backward) for _ in range(3)]
        device.free(second, sites.attend.backward_release)
        device.free(grad, sites.attend.backward_release)
        joined = device.alloc(3 * wide, sites.qkv.backward)
        device.free_all(parts, sites.contiguous.backward_release)
        self._release(sites.attend, 4)
        return joined

    def _linear_backward(self, site: Site, grad: Block, wide: int, weight: str, bias: str | None, saved: int) -> Block:
        device = self.device
        result = device.alloc(wide, site.backward)
        for name in (weight, bias):
            if name is not None:
                elements = self.weights[name].elements
                half = device.alloc(elements * HALF, site.backward)
                full = device.alloc(elements * FLOAT, self.sites.accumulate)
                device.free(half, self.sites.accumulate_free)
                self._accumulate(name, full)
        device.free(grad, site.backward_release)
        self._release(site, saved)
        return result

    def _norm_backward(self, site: Site, grad: Block, wide: int, name: str) -> Block:
        result = self.device.alloc(wide, site.backward)
        for part in ("weight", "bias"):
            elements = self.weights[f"{name}.{part}"].elements
            self._accumulate(f"{name}.{part}", self.device.alloc(elements * FLOAT, site.backward))
        self.device.free(grad, site.backward_release)
        self._release(site, 3)
        return result

    def _through(self, site: Site, grad: Block, size: int, saved: int) -> Block:
        result = self.device.alloc(size, site.backward)
        self.device.free(grad, site.backward_release)
        self._release(site, saved)
        return result

    def _join(self, site: Site, grad: Block, branch: Block, wide: int) -> Block:
        joined = self.device.alloc(wide, site.backward)
        self.device.free(branch, site.backward_release)
        self.device.free(grad, site.backward_release)
        return joined

    def _release(self, site: Site, count: int) -> None:
        """The node of a site has run: frees its saved tensors."""
        for _ in range(count):
            self.device.free(self._saved.pop(), site.backward_release)

    def _accumulate(self, name: str, grad: Block) -> None:
        """AccumulateGrad: keeps the first gradient; adds and frees later ones."""
        weight = self.weights[name]
        if weight.grad is None:
            weight.grad = grad
        else:
            self.device.free(grad, self.sites.accumulate_free)

    def _reduce(self, size: int) -> None:
        """All-reduce a layer's gradients in one flat buffer, which the communication stream still reads."""
        buffer = self.device.alloc(size, self.sites.reduce)
        self.device.allocator.record_stream(buffer, COMM_STREAM)
        self.device.free(buffer, self.sites.reduce_free)
