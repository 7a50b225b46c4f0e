"""The places of a training program that allocate, each with the stacks of its forward and backward pass.

The program is a GPT in `model.py`, trained by `train.py`. Its layers form four stages, each called from a different
line; the layers of a stage run the same lines and so share their stacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from generator.recorder import Frames
from generator.stacks import APP, TORCH, Call, StackBook

STAGES = 4
FUNCTIONAL = TORCH + "nn/functional.py"
MODEL = APP + "model.py"
TRAIN = APP + "train.py"
ADAM = TORCH + "optim/adam.py"
OPTIMIZER = TORCH + "optim/optimizer.py"
NN_MODULE = TORCH + "nn/modules/module.py"


@dataclass(slots=True)
class Site:
    """One operator of the model: where it allocates and frees, forward and backward, and its regression factor."""

    area: str
    forward: Frames
    release: Frames
    backward: Frames
    backward_release: Frames
    cast: Frames
    scale: float = 1.0


class SiteMaker:
    """Makes sites; `step` is the place that calls backward, `regressed` the area whose sizes are multiplied."""

    def __init__(self, book: StackBook, step: Call, regressed: str, regression: float) -> None:
        self.book = book
        self.step = step
        self._regressed = regressed
        self._regression = regression

    def site(self, area: str, place: Call, operator: str, node: str) -> Site:
        """The site of an operator at a place, with the autograd node that runs its backward."""
        return Site(
            area,
            place.stack("aten::" + operator),
            place.release(),
            self.book.backward(self.step, node, f"aten::{operator}_backward"),
            self.book.backward(self.step, node, "", free=True),
            place.call(FUNCTIONAL, 2401, "_cast_weight").stack("aten::to"),
            self._regression if area == self._regressed else 1.0,
        )

    def linear(self, area: str, place: Call) -> Site:
        """An nn.Linear."""
        return self.site(area, place.module(TORCH + "nn/modules/linear.py", 134), "linear", "AddmmBackward0")

    def norm(self, place: Call) -> Site:
        """An nn.LayerNorm."""
        inner = place.module(TORCH + "nn/modules/normalization.py", 229).call(FUNCTIONAL, 2935, "layer_norm")
        return self.site("norm", inner, "native_layer_norm", "NativeLayerNormBackward0")

    def dropout(self, area: str, place: Call) -> Site:
        """An nn.Dropout."""
        inner = place.module(TORCH + "nn/modules/dropout.py", 73).call(FUNCTIONAL, 1447, "dropout")
        return self.site(area, inner, "native_dropout", "NativeDropoutBackward0")


class LayerSites:
    """The sites of a transformer layer that is called at `caller`."""

    def __init__(self, make: SiteMaker, caller: Call) -> None:
        block = caller.module(MODEL, 121)
        attention, mlp = block.module(MODEL, 58), caller.module(MODEL, 124).module(MODEL, 92)
        attend, activation = attention.call(MODEL, 70, "attend"), mlp.module(TORCH + "nn/modules/activation.py", 816)
        softmax = attention.call(MODEL, 73, "attend").call(FUNCTIONAL, 2140, "softmax")
        self.norm1 = make.norm(block.call(MODEL, 30, "norm"))
        self.qkv = make.linear("attention", attention.call(MODEL, 60, "project_qkv"))
        self.scores = make.site("attention", attend, "matmul", "UnsafeViewBackward0")
        self.softmax = make.site("attention", softmax, "softmax", "SoftmaxBackward0")
        self.attend = make.site(
            "attention", attend, "scaled_dot_product_attention", "ScaledDotProductFlashAttentionBackward0"
        )
        self.contiguous = make.site("attention", attention.call(MODEL, 80, "merge_heads"), "clone", "CloneBackward0")
        self.out = make.linear("attention", attention.call(MODEL, 83, "project_out"))
        self.dropout1 = make.dropout("attention", attention)
        self.add1 = make.site("attention", block, "add", "AddBackward0")
        self.norm2 = make.norm(block.call(MODEL, 31, "norm"))
        self.up = make.linear("mlp", mlp)
        self.gelu = make.site("gelu", activation, "gelu", "GeluBackward0")
        self.down = make.linear("mlp", mlp.call(MODEL, 95, "project_down"))
        self.dropout2 = make.dropout("mlp", mlp)
        self.add2 = make.site("mlp", block.call(MODEL, 126, "residual"), "add", "AddBackward0")
        self.leave = block.release()


class ModelSites:
    """The sites of the model around its layers, and the stacks of a step's inputs, casts and gradients."""

    def __init__(self, book: StackBook, regressed: str, regression: float) -> None:
        self.train = train = book.program(TRAIN, 214).call(TRAIN, 188, "main").call(TRAIN, 141, "train")
        step = train.call(TRAIN, 96, "train_step")
        backward = train.call(TRAIN, 99, "train_step")
        make = SiteMaker(book, backward, regressed, regression)
        model = step.module(MODEL, 178)
        positions = model.call(MODEL, 170, "add_positions")
        self.token = make.site(
            "embedding", model.module(TORCH + "nn/modules/sparse.py", 192), "embedding", "EmbeddingBackward0"
        )
        self.position = make.site("embedding", positions, "add", "AddBackward0")
        self.norm_out = make.norm(model.call(MODEL, 183, "final_norm"))
        self.head = make.linear("head", model.call(MODEL, 184, "logits"))
        compute = step.call(TRAIN, 103, "compute_loss")
        loss = compute.call(FUNCTIONAL, 3494, "cross_entropy")
        self.to_float = make.site("loss", compute, "to", "ToCopyBackward0")
        self.log_softmax = make.site("loss", loss, "log_softmax", "LogSoftmaxBackward0")
        self.loss = make.site("loss", loss.call(FUNCTIONAL, 3104, "nll_loss"), "nll_loss_nd", "NllLossBackward0")
        again = (
            backward.call(TORCH + "_tensor.py", 648, "backward")
            .call(TORCH + "autograd/graph.py", 829, "_engine_run_backward")
            .call(TORCH + "autograd/function.py", 311, "apply")
            .call(TORCH + "utils/checkpoint.py", 1129, "unpack_hook")
            .call(TORCH + "utils/checkpoint.py", 1535, "recompute_fn")
        )
        self.layers = [LayerSites(make, model.call(MODEL, 172 + 2 * at, f"run_stage{at}")) for at in range(STAGES)]
        self.recomputed = [LayerSites(make, again.call(MODEL, 150 + at, f"run_stage{at}")) for at in range(STAGES)]
        load = train.call(TRAIN, 90, "next_batch")
        self.batch = load.call(APP + "data.py", 64, "to_device").stack("aten::to")
        self.batch_free = train.release()
        self.model_free = model.release()
        self.cast_free = step.call(TORCH + "amp/autocast_mode.py", 379, "__exit__").release()
        self.accumulate = book.backward(backward, "AccumulateGrad", "aten::to")
        self.accumulate_free = book.backward(backward, "AccumulateGrad", "", free=True)
        reduce = (
            backward.call(APP + "distributed.py", 47, "reduce_gradients")
            .call(TORCH + "distributed/c10d_logger.py", 83, "wrapper")
            .call(TORCH + "distributed/distributed_c10d.py", 2938, "all_reduce")
        )
        self.reduce, self.reduce_free = reduce.stack("aten::cat"), reduce.release()


class LoopStacks:
    """Stacks of work outside the model: building it, the optimizer, clipping, metrics."""

    def __init__(self, book: StackBook, train: Call) -> None:
        build = book.program(TRAIN, 214).call(TRAIN, 162, "main").call(MODEL, 140, "__init__")
        convert = build.call(NN_MODULE, 1369, "to").call(NN_MODULE, 955, "_apply").call(NN_MODULE, 1355, "convert")
        self.parameter = convert.stack("aten::to")
        step = train.call(TRAIN, 112, "train_step").call(OPTIMIZER, 526, "wrapper").call(OPTIMIZER, 81, "_use_grad")
        init = step.call(ADAM, 226, "step")
        self.exp_avg = init.call(ADAM, 181, "_init_group").stack("aten::zeros_like")
        self.exp_avg_sq = init.call(ADAM, 185, "_init_group").stack("aten::zeros_like")
        adam = step.call(ADAM, 237, "step").call(ADAM, 949, "adam")
        foreach = adam.call(ADAM, 763, "_multi_tensor_adam")
        self.foreach, self.foreach_free = foreach.stack("aten::_foreach_sqrt"), foreach.release()
        single = adam.call(ADAM, 524, "_single_tensor_adam")
        self.single, self.single_free = single.stack("aten::sqrt"), single.release()
        self.denominator = adam.call(ADAM, 529, "_single_tensor_adam").stack("aten::div")
        clip = train.call(TRAIN, 108, "train_step").call(TORCH + "nn/utils/clip_grad.py", 42, "_no_grad_wrapper")
        norm = clip.call(TORCH + "nn/utils/clip_grad.py", 97, "_get_total_norm")
        self.clip, self.clip_free = norm.stack("aten::_foreach_norm"), norm.release()
        self.zero_grad = train.call(TRAIN, 88, "train_step").call(OPTIMIZER, 1004, "zero_grad").release()
        metrics = train.call(TRAIN, 118, "log_metrics")
        self.metrics, self.metrics_free = metrics.stack("aten::mean"), metrics.release()
