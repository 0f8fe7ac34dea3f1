#!/usr/bin/env python
"""Compare the validation loss of nmt's optimized training with a plain float32 training loop.

    scripts/compare_precision.py --updates 400 --seeds 1 2 3

The plain loop uses the same model, initial weights and batches, but the dropout, loss and optimizer
of PyTorch in float32. Both models are validated in float32. Requires Multi30k (nmt data download
multi30k).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from itertools import islice
from pathlib import Path

from nmt.jobs import process_settings

process_settings.set_defaults()  # before importing torch, like the nmt command

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bench_train import WORKLOADS
from command_errors import error_messages
from nmt.core.config import Config, config_io
from nmt.data.prepare import PreparedData, prepare
from nmt.model.layers import Dropout
from nmt.model.seq2seq import Seq2Seq
from nmt.training.precision import training_dtype
from nmt.training.trainer import Trainer

WORKLOAD = [*WORKLOADS["cpu"][1], "train.schedule=inverse_sqrt(peak=1e-3, warmup=150)"]


def main() -> None:
    """Train both ways with each seed and print the losses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--precision", default="auto")
    arguments = parser.parse_args()
    device = torch.device("cpu")
    dtype = training_dtype(
        arguments.precision, device, config_io.load(config_io.find("multi30k"), WORKLOAD)
    )
    process_settings.tune_malloc_for_training()
    differences = []
    for seed in arguments.seeds:
        config = config_io.load(config_io.find("multi30k"), [*WORKLOAD, f"seed={seed}"])
        prepared = prepare(config)
        ours = _train(_trainer(config, prepared, dtype), arguments.updates)
        plain = _train_plainly(_trainer(config, prepared, torch.float32), arguments.updates)
        differences.append(ours - plain)
        print(
            f"seed {seed}: nmt in {dtype} {ours:.4f}, plain loop in float32 {plain:.4f}:"
            f" {ours - plain:+.4f}"
        )
    print(f"mean difference {statistics.mean(differences):+.4f} nats per token")


def _trainer(config: Config, prepared: PreparedData, dtype: torch.dtype) -> Trainer:
    return Trainer(config, Path(tempfile.gettempdir()), prepared, torch.device("cpu"), dtype)


def _train(trainer: Trainer, updates: int) -> float:
    trainer.model.train()
    for update in islice(trainer.updates(), updates):
        trainer.update(update, updates)
    return _loss(trainer)


def _train_plainly(trainer: Trainer, updates: int) -> float:
    config, model = trainer.config, trainer.model.train()
    _use_plain_dropout(model)
    optimizer = torch.optim.Adam(
        model.parameters(), betas=(config.train.beta1, config.train.beta2), eps=config.train.eps
    )
    for step, update in enumerate(islice(trainer.updates(), updates), 1):
        (batch,) = update.batches
        optimizer.param_groups[0]["lr"] = trainer.schedule(step, updates, config.model.dim)
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
        logits_NV: Tensor = hidden_ND @ model.output_weight_VD.t()
        loss = F.cross_entropy(
            logits_NV, batch.labels_N, label_smoothing=config.train.label_smoothing
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.train.clip_norm)
        optimizer.step()
    return _loss(trainer)


def _use_plain_dropout(model: Seq2Seq) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                setattr(module, name, nn.Dropout(child.rate))


def _loss(trainer: Trainer) -> float:
    trainer.model.compute_dtype = None
    return trainer._validation_loss(trainer.model.eval())


if __name__ == "__main__":
    with error_messages():
        main()
