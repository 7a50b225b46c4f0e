"""The callbacks, inside Lightning and Hugging Face's Trainer themselves, over the fake driver (tests/fakecuda)."""

from __future__ import annotations

from pathlib import Path

import fake_torch
import pytest
from fake_torch import PROGRAMS, FakeTorch

import snapreport


@pytest.mark.parametrize(
    ("framework", "program", "weight", "size"),
    [
        ("lightning", "lightning_fit.py", "encoder.weight", 64 * 256 * 4),
        ("transformers", "trainer_fit.py", "model.layers.0.self_attn.q_proj.weight", 64 * 64 * 4),
    ],
)
def test_callback(torch_cuda: FakeTorch, tmp_path: Path, framework: str, program: str, weight: str, size: int) -> None:
    """Three steps as the framework counts them, parameters by name and with the stack trace of their allocation."""
    if not torch_cuda.has(framework):
        pytest.skip(f"{framework} is not installed beside this PyTorch: tests/run.py --all-torch installs it")
    path = fake_torch.package_folder(tmp_path / "path")
    done = torch_cuda.run(PROGRAMS / program, tmp_path / "run", PYTHONPATH=path)
    assert done.code == 0, done.err
    names = [file.name for file in (tmp_path / "run").iterdir()]
    assert names == ["rank_00000_step_00000003_exit.pickle.gz"], (names, done.err)
    loaded = snapreport.load(tmp_path / "run" / names[0])
    assert loaded.steps(0)["step"].to_list()[:3] == [0, 1, 2]
    table = loaded.allocations(0)
    found = table.filter(table["user_metadata"] == weight)
    assert found["size"].to_list() == [size] and found["category"].to_list() == ["parameter"]
    frames = [loaded.recording.frames["filename"][i] for i in loaded.recording.stack(found["stack"][0])]
    assert any(program in frame for frame in frames)
