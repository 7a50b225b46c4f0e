"""The first sentences about a device: what is wrong and its remedy, else what holds the peak."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from snapreport.findings.effort import WITHOUT_TYPES
from snapreport.findings.live import category_text
from snapreport.findings.model import Finding
from snapreport.findings.remedy_place import remedy_place
from snapreport.number_format import share_text, upper_first
from snapreport.sentence import bytes_change, bytes_part, bytes_share, sentence

_MIN_SAVING_ONE_LINE, _MIN_SAVING, _LEAST_SAVING = 0.05, 0.15, 0.1
"""Of the peak: a change of one line, and any other remedy, that saves less is no diagnosis; the least where there is no
other.
"""
_STEPS_OF_MINOR_LEAK, _LEAST_TO_FILL = 100_000, 16 << 30
"""A minor leak needs so many steps to add as much as the peak, or so many bytes: a day of steps of a second each."""
_MIN_CAUSE_SHARE = 0.3
"""Of the peak: a category with less does not explain it."""
_MIN_LINE_SHARE = 0.5
"""Of the peak: a line that allocated so much explains it where categories do not."""
_FROM_ONE_LINE = 0.25
"""Of a category's bytes: a line with so many is named."""
_CAUSES = {
    "no-grad": ("Graphs that no backward pass uses hold", "add `torch.no_grad()`"),
    "fused-attention": ("Attention scores and their softmax hold", "use `scaled_dot_product_attention`"),
    "sdpa-math-kernel": ("Attention scores hold", "use `scaled_dot_product_attention` with a fused kernel"),
    "autocast-copies": ("Autocast's 16-bit copies of the weights hold", "cast the weights once"),
    "kv-cache": ("Caches of keys and values hold", "halve them"),
    "retained-graphs": (
        "Graphs that a stored output or loss refers to hold",
        "release them after the backward pass",
    ),
    "previous-outputs": ("Outputs of the previous iteration hold", "delete the old ones first"),
    "replaced-together": ("Tensors that have been copied hold", "replace each before the next is copied"),
    "backward-each": ("Graphs of several forward passes hold", "call `backward()` after each"),
    "expanded-mask": ("Copies of one attention mask hold", "use a mask that broadcasts"),
    "second-model": ("A model that is no longer in use holds", "delete it"),
    "loaded-checkpoint": ("A loaded checkpoint holds", "load it to the CPU"),
    "foreach-optimizer": ("Temporaries of the optimizer's foreach code hold", "use `fused=True`"),
    "sparse-gradients": ("Dense gradients of embeddings and their temporaries hold", "use `sparse=True`"),
    "keep-gradients": ("Gradients of the previous step hold", "free them before the forward pass"),
    "untrained-gradients": (
        "Gradients of weights that no optimizer updates, and what is saved for them, hold",
        "freeze those weights",
    ),
    "optimizer-state": ("Optimizer state holds", "shard it"),
    "offload": ("Optimizer state holds", "offload it to the CPU"),
    "checkpointing": ("Activations of repeated layers hold", "use activation checkpointing"),
    "accumulation": ("What grows with the batch holds", "halve the batch with gradient accumulation"),
    "chunked-loss": ("Logits and what the loss computes from them hold", "compute the loss in chunks"),
    "evaluation-batch": ("A forward pass without a backward pass holds", "evaluate half the batch at a time"),
    "inference-batch": ("What grows with the batch holds", "run half of it at a time"),
    "device-imbalance": ("Outputs that DataParallel gathers and their loss hold", "compute the loss inside the module"),
    "broadcast": (
        "Products of a broadcast from [N] and [N, 1] hold",
        "give prediction and target the same shape",
    ),
    "one-hot": ("One-hot vectors and what the loss computes from them hold", "give the loss indices of classes"),
    "one-hot-inputs": ("One-hot vectors of columns hold", "use an embedding"),
    "collected-outputs": ("Results that a loop collects hold", "move each to the CPU"),
    "full-logits": ("Logits of unused positions hold", "select the positions before the last layer"),
    "distance-matrix": ("Differences of all pairs of vectors hold", "use `torch.cdist`"),
    "distance-chunks": ("Distances of all vectors to all others hold", "compute them in chunks of rows"),
    "score-chunks": ("Scores of all vectors with all others hold", "compute them in chunks of rows"),
    "triplet-chunks": ("Tensors of all triplets of a batch hold", "compute them in chunks of anchors"),
    "collected-weights": ("Trained copies of a model hold", "keep their weights on the CPU"),
    "weight-copies": ("Copies of the weights hold", "keep them on the CPU"),
    "cast-on-device": ("Weights that are cast on the device hold", "move them in the smaller type"),
    "prefetched-batches": ("Batches on the device ahead of their steps hold", "copy fewer of them ahead"),
    "data-on-device": ("A data set on the device holds", "keep it in host memory"),
}
"""Subject and verb of a rule's cause, and its remedy in a few words; a rule that is not here gives its title."""
_MATH_KERNEL = (
    "Scores, softmax and copies of SDPA's math kernel hold",
    "let `scaled_dot_product_attention` use a fused kernel",
)
"""The same where C++ frames show that kernel."""


class Statement(Struct, frozen=True):
    """A sentence of the diagnosis, and the finding that it is about."""

    text: str
    finding: Finding


def diagnosis(found: Sequence[Finding], device: int) -> list[Statement]:
    """The diagnosis of one device, the cause first; empty for one without allocations. ``found``: of a snapshot, in
    order.

    A failure comes before everything. Then come what one line mends and leaks, fragmentation, other remedies that were
    replayed, each with most bytes first, two remedies at once, remedies that save less, reference cycles, segments
    released again and again, a smaller batch of inference, and last what holds the peak. Estimates that rest on number
    types are no diagnosis. A minor leak comes after what holds the peak. What holds less than a request that failed is
    no reason for it.
    """
    here = [finding for finding in found if finding.device == device]
    peak = next((finding for finding in here if finding.kind == "peak"), None)
    failure = next((f for f in here if f.kind == "oom"), None)
    best = _best_remedy(here, peak)
    if failure is not None:
        first = [Statement(sentence("{}.", failure.title), failure)]
        first += [Statement(line, failure) for line in failure.detail[:1]]
        avoiding = next((f for f in here if f.evidence.get("avoids_failure")), None)
        if avoiding is not None:
            first.append(Statement(sentence("{}.", avoiding.title), avoiding))
            best = []
        allocated = int(failure.evidence["allocated_bytes"])
        if not best and allocated >= failure.evidence["requested_bytes"]:
            best = _main_use(failure, allocated, "what was allocated")
        return [*first, *best, *_minor_leak(here, peak)]
    name = "the final state" if peak and peak.title.startswith("Final state") else "the peak"
    name = "the peak of the trace" if peak and peak.evidence.get("is_lost") else name
    return [*(best or (_main_use(peak, peak.bytes, name) if peak else [])), *_minor_leak(here, peak)]


def _is_minor_leak(finding: Finding, peak: Finding | None) -> bool:
    """Whether it is a leak that has added little to the peak, and has ended, or needs a day of steps to add as much as
    the peak.
    """
    if finding.kind != "leak" or finding.severity != "warning" or peak is None:
        return False
    evidence = finding.evidence
    is_slow = evidence.get("bytes_per_step", 0) * _STEPS_OF_MINOR_LEAK < max(peak.bytes, _LEAST_TO_FILL)
    has_ended = evidence["freed_bytes"] == evidence["live_bytes"]
    return bool((is_slow or has_ended) and finding.bytes < _MIN_SAVING_ONE_LINE * peak.bytes)


def _minor_leak(here: Sequence[Finding], peak: Finding | None) -> list[Statement]:
    """The largest leak that explains no peak of the trace."""
    leak = next((finding for finding in here if _is_minor_leak(finding, peak)), None)
    return [Statement(sentence("{}.", leak.title), leak)] if leak else []


def _best_remedy(here: Sequence[Finding], peak: Finding | None) -> list[Statement]:
    """The best remedy that was replayed, or the worst problem; empty where there is neither."""
    ranked: list[tuple[int, int, list[Statement]]] = []
    for finding in here:
        size, setting = _least_bytes(finding), _setting_for(finding, here)
        if _is_minor_leak(finding, peak):
            continue
        if finding.kind == "leak" and finding.severity == "warning":
            remedy = Statement(finding.detail[-1], finding)
            ranked.append((0, size, [Statement(sentence("{}.", finding.title), finding), remedy]))
        elif peak and "bursts" in finding.evidence and size >= _MIN_CAUSE_SHARE * peak.bytes:
            # What waits for Python's garbage collector, which another remedy explains better where there is one.
            remedy = Statement(finding.detail[-1], finding)
            ranked.append((5, size, [Statement(sentence("{}.", finding.title), finding), remedy]))
        elif finding.kind == "fragmentation" and (finding.severity == "warning" or setting):
            both = [finding, setting] if setting else [finding]
            ranked.append((1, size, [Statement(sentence("{}.", each.title), each) for each in both]))
        elif finding.kind == "churn":
            both = [finding, *(f for f in here if f.kind == "advice" and f.evidence["rule"] == "empty-cache")]
            ranked.append((6, size, [Statement(sentence("{}.", each.title), each) for each in both]))
        elif _is_mistake(finding):
            held, title = finding.detail[0], sentence("{}.", finding.title)
            ranked.append((0, size, [Statement(held, finding), Statement(title, finding)]))
        elif peak and _is_replayed(finding) and _saves_enough(finding, peak):
            is_first, is_last = finding.evidence["priority"] == 0, finding.evidence["rule"] == "inference-batch"
            rank = 0 if is_first else 7 if is_last else 2
            ranked.append((rank, size, [Statement(_remedy(finding, here), finding)]))
        elif peak and (text := _two_remedies(finding, peak)):
            ranked.append((3, int(finding.evidence["second_maximum"]["saves_bytes"]), [Statement(text, finding)]))
        elif peak and _is_replayed(finding) and _saves_enough(finding, peak, _LEAST_SAVING):
            ranked.append((4, size, [Statement(_remedy(finding, here), finding)]))
    return min(ranked, key=lambda each: (each[0], -each[1]), default=(0, 0, list[Statement]()))[2]


def _least_bytes(finding: Finding) -> int:
    """What a finding is about; of an estimate with a range, the bytes that are saved at least."""
    saving = finding.evidence.get("saving") if finding.kind == "advice" else None
    if not saving or "high_bytes" not in saving:
        return finding.bytes
    return finding.bytes + int(saving["peak_bytes"]) - int(saving["high_bytes"])


def _is_mistake(finding: Finding) -> bool:
    """Whether it is advice about a mistake that one line mends, whose bytes are known, although no replay shows a lower
    peak.
    """
    evidence = finding.evidence
    return (
        finding.kind == "advice"
        and (evidence["effort"], evidence["priority"]) == ("one line", 0)
        and not evidence["saving"]
    )


def _is_replayed(finding: Finding) -> bool:
    """Whether it is advice whose replay lowers the peak."""
    if finding.kind != "advice" or not finding.evidence["saving"]:
        return False
    is_trusted = finding.confidence == "estimate" and finding.evidence["rule"] in WITHOUT_TYPES
    return is_trusted or finding.title.endswith("(replayed)")


def _saves_enough(finding: Finding, peak: Finding, least: float = _MIN_SAVING) -> bool:
    return finding.bytes >= (_MIN_SAVING_ONE_LINE if finding.evidence["priority"] == 0 else least) * peak.bytes


def _two_remedies(finding: Finding, peak: Finding) -> str:
    """Two remedies where the second maximum limits each of them; "" where they save little."""
    row = finding.evidence.get("second_maximum") if finding.kind == "advice" else None
    if row is None or not _is_replayed(finding) or row["saves_bytes"] < _MIN_SAVING * peak.bytes:
        return ""
    if finding.evidence["saving"].get("is_lower_bound") or any(rule not in _CAUSES for rule in row["rules"]):
        return ""
    one, two = (sentence(_CAUSES[rule][1]) for rule in row["rules"])
    change = bytes_change(int(row["peak_bytes"]) + int(row["saves_bytes"]), int(row["peak_bytes"]))
    return sentence("{one} and {two}: peak {} (replayed).", change, one=upper_first(one), two=two)


def _setting_for(finding: Finding, here: Sequence[Finding]) -> Finding | None:
    """The best replayed setting of the allocator, for a finding that much is reserved and not allocated."""
    if finding.kind != "fragmentation":
        return None
    settings = [f for f in here if f.evidence.get("replayed_bytes") is not None]
    return min(settings, key=lambda f: int(f.evidence["replayed_bytes"]), default=None)


def _remedy(advice: Finding, here: Sequence[Finding]) -> str:
    """Such as "Graphs that no backward pass uses hold 26.8 of 39.6 GiB: add torch.no_grad(), peak 13.2 GiB
    (replayed).".
    """
    evidence, saving = advice.evidence, advice.evidence["saving"]
    if evidence["rule"] not in _CAUSES:
        return sentence("{}.", advice.title)
    cause, do = map(sentence, _MATH_KERNEL if evidence.get("is_math_kernel") else _CAUSES[evidence["rule"]])
    held = int(evidence.get("previous_bytes") or evidence.get("retained_bytes") or evidence["at_peak_bytes"])
    whole = int(saving["peak_bytes"]) + int(saving["saves_bytes"])
    is_lost = any(finding.kind == "peak" and finding.evidence.get("is_lost") for finding in here)
    after = sentence("peak of the trace {}" if is_lost else "peak {}", bytes_part(saving["peak_bytes"]))
    replayed = "estimate" if advice.confidence == "estimate" else "replayed"
    if "low_bytes" in saving:
        ends = bytes_part(saving["low_bytes"]), bytes_part(saving["high_bytes"])
        after, replayed = sentence("peak between {} and {}", *ends), "estimate"
    needed = ""
    if saving.get("is_lower_bound"):
        # What the program would have needed after the failure is not recorded.
        after = sentence("then {} or more are needed", bytes_part(saving["peak_bytes"]))
        failed = any(finding.kind == "oom" for finding in here)
        needed = " needed at the failure" if failed else ""
    if evidence["effort"] == "one line" and evidence["where"]:
        do = sentence("{do} (see {})", remedy_place(evidence["where"]), do=do)
    return sentence(
        "{cause} {}{needed}: {do}, {after} ({replayed}).",
        bytes_share(held, whole),
        cause=cause,
        needed=needed,
        do=do,
        after=after,
        replayed=replayed,
    )


def _main_use(of: Finding, whole: int, name: str) -> list[Statement]:
    """What holds most of ``whole`` bytes: "Activations hold 97% of the peak, 60% of it in forward dit.py:83.".

    Where no category does, the line that allocated half of them; empty where none did: memory of unknown use explains
    nothing. ``of``: the peak or a failure; ``name``: of the whole.
    """
    stack = next((row for row in of.evidence["stacks"] if row["stack"]), None)
    rows = [row for row in of.evidence["categories"] if row["category"] != "unknown"]
    if not rows or rows[0]["bytes"] < _MIN_CAUSE_SHARE * whole:
        if stack is None or stack["bytes"] < _MIN_LINE_SHARE * whole:
            return []
        share = "All" if stack["bytes"] == whole else share_text(stack["bytes"], whole)
        return [Statement(sentence("{share} of {name} is from {}.", stack["line"], share=share, name=name), of)]
    parts = rows[: 1 if rows[0]["bytes"] >= 0.5 * whole else 2]
    texts = [category_text(row["category"]) for row in parts]
    is_one = len(texts) == 1 and texts[0] in ("optimizer state", "KV cache")
    size = sum(row["bytes"] for row in parts)
    inferred = of.evidence.get("inferred_categories", [])
    where = ""
    if stack and stack["category"] == rows[0]["category"] and stack["category_bytes"] >= _FROM_ONE_LINE * size:
        part = "all" if stack["category_bytes"] == size else share_text(stack["category_bytes"], size)
        where = sentence(", {part} of it in {}", stack["line"], part=part)
    text = sentence(
        "{what} {hold} {share} of {name}{doubt}{where}.",
        what=upper_first(" and ".join("the KV cache" if text == "KV cache" else text for text in texts)),
        hold="holds" if is_one else "hold",
        share=share_text(size, whole),
        name=name,
        doubt=" (inferred)" if any(text in inferred for text in texts) else "",
        where=where,
    )
    return [Statement(text, of)]


def headline(found: Sequence[Finding], device: int) -> list[str]:
    """The diagnosis and the peak, as the first sentences of every output."""
    lines = [statement.text for statement in diagnosis(found, device)]
    peak = next((f for f in found if f.device == device and f.kind == "peak"), None)
    return lines + ([sentence("{}.", peak.title)] if peak else [])
