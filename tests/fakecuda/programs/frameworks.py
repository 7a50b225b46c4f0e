"""Trains by a framework's own loop and prints ``torch.cuda.memory_stats`` as JSON: ``frameworks.py NAME``."""

import json
import sys
import tempfile

import torch


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
        )
    )


def train(model):
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 512, (24, 32))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=data).train()


def transformers():
    train(llama())


def peft():
    from peft import LoraConfig, get_peft_model

    train(get_peft_model(llama(), LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])))


def lightning():
    import lightning as pl
    from torch.utils.data import DataLoader, TensorDataset

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)

        def training_step(self, batch, index):
            return self.head(self.encoder(batch[0]).relu()).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_steps=4, accumulate_grad_batches=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=4))


torch.manual_seed(0)
{"transformers": transformers, "peft": peft, "lightning": lightning}[sys.argv[1]]()
print(json.dumps(torch.cuda.memory_stats()))
