"""Lightning with the callback: ``lightning_fit.py FOLDER [LOGGER]``, a class of Lightning's that it logs to."""

import json
import sys

import lightning
import torch
from lightning.pytorch import loggers
from torch.utils.data import DataLoader, TensorDataset

from snapreport.recorder.lightning import MemoryRecorder


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)

    def training_step(self, batch, index):
        return self.head(self.encoder(batch[0]).relu()).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


logger = getattr(loggers, sys.argv[2])(save_dir=sys.argv[1] + "_tracked") if len(sys.argv) > 2 else False
trainer = lightning.Trainer(
    accelerator="gpu", devices=1, max_steps=3, accumulate_grad_batches=2, logger=logger, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[MemoryRecorder(sys.argv[1], log=bool(logger))],
)  # fmt: skip
trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=8))
if run := getattr(sys.modules.get("wandb"), "run", None):
    print(json.dumps(dict(run.summary), default=str))
