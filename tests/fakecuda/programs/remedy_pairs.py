"""``remedy_pairs.py OUT PROGRAM [REMEDY]`` runs a program of the folder ``pairs`` and dumps a snapshot to OUT, also
when it runs out of memory, and then exits with 3; ``remedy_pairs.py --list`` prints them all with their remedies, as
JSON: {program: {remedy: rule}}. ``STACKS=all`` in the environment records C++ frames, too.
"""

from __future__ import annotations

import json
import os
import sys

import pairs.aligned
import pairs.devices
import pairs.habits
import pairs.hasty
import pairs.impolite
import pairs.keepers
import pairs.laboratory
import pairs.language
import pairs.mistakes
import pairs.newcomers
import pairs.ordinary
import pairs.others
import pairs.science
import pairs.strangers
import pairs.trials
import pairs.unseen
import pairs.vision  # noqa: F401
import torch
from pairs.kit import OUT, PROGRAM, PROGRAMS

if OUT == "--list":
    print(json.dumps({name: remedies for name, (_, remedies) in PROGRAMS.items()}))
else:
    torch.backends.cudnn.enabled = False
    torch.cuda.memory._record_memory_history(stacks=os.environ.get("STACKS", "python"), max_entries=1_000_000)
    try:
        PROGRAMS[PROGRAM][0]()
    except torch.OutOfMemoryError:
        torch.cuda.memory._dump_snapshot(OUT)
        sys.exit(3)
    torch.cuda.memory._dump_snapshot(OUT)
