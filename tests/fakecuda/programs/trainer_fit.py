"""Hugging Face's Trainer with the callback: ``trainer_fit.py FOLDER [TRACKER]``, in whose run it logs."""

import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from snapreport.recorder.transformers import MemoryRecorder

callback = MemoryRecorder(sys.argv[1], log=len(sys.argv) > 2)
config = LlamaConfig(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4,
)  # fmt: skip
tokens = torch.randint(0, 512, (16, 32))
data = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    output_dir=sys.argv[1] + "_trainer", max_steps=3, per_device_train_batch_size=2, report_to=sys.argv[2:],
    save_strategy="no", logging_strategy="no", disable_tqdm=True,
)  # fmt: skip
Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data, callbacks=[callback]).train()
if run := getattr(sys.modules.get("wandb"), "run", None):
    print(json.dumps(dict(run.summary), default=str))
