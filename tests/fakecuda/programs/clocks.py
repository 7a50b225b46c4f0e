"""Allocates under the memory recorder and the profiler: ``clocks.py FILE SECONDS DEVICE``. FILE.truth.json has a number
for each allocation, all in ns since 1970: the time of day ``before`` and ``after`` it, and that which each recorder
has: ``recorded``, ``profiled``. On the CPU there is only the profiler.
"""

import json
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

# Allocations in a row: the first of them finds cold caches, and a pause lets the time of day go on.
BURST, PAUSE = 20, 0.005


def main() -> None:
    name, seconds, device = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    is_cuda = device == "cuda"
    if is_cuda:
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    before, after, addresses = [], [], []
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with profile(activities=activities, profile_memory=True) as profiler:
        end = time.time() + seconds
        while time.time() < end:
            for _ in range(BURST):
                before.append(time.time_ns())
                tensor = torch.empty(2000, device=device)
                after.append(time.time_ns())
                addresses.append(tensor.data_ptr())
                del tensor
            time.sleep(PAUSE)
    profiler.export_chrome_trace(f"{name}.json")
    with open(f"{name}.json") as file:
        trace = json.load(file)
    memory = [one for one in trace["traceEvents"] if one["name"] == "[memory]" and one["args"]["Bytes"] > 0]
    memory = [one for one in memory if one["args"]["Device Type"] == int(is_cuda)]
    memory.sort(key=lambda one: one["ts"])
    base = trace["baseTimeNanoseconds"]
    profiled = [(base + round(one["ts"] * 1000), one["args"]["Addr"]) for one in memory][-len(before) :]
    recorded = list(profiled)
    if is_cuda:
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        # Its µs are whole ones.
        times = [(one["time_us"] * 1000 + 500, one["addr"]) for one in events if one["action"] == "alloc"]
        recorded = times[-len(before) :]
    assert addresses == [address for _, address in profiled] == [address for _, address in recorded]
    columns = {"before": before, "after": after}
    columns |= {"recorded": [at for at, _ in recorded], "profiled": [at for at, _ in profiled]}
    with open(f"{name}.truth.json", "w") as file:
        json.dump(columns, file)


if __name__ == "__main__":
    main()
