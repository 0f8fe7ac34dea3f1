"""Token-level knowledge distillation: the student learns the distribution of a teacher besides the
labels.

Hinton et al. 2015, with the word-level objective of Kim and Rush 2016, section 3.1. The loss of a
position is

    (1 - w) · CE(labels) + w · KL(q ‖ p),

where w is `train.distill_weight`, CE the label-smoothed cross-entropy and p the distribution of the
student. q is that of the teacher, of which only the k most probable tokens are kept (Tan et al.
2019 keep 8). The remaining probability is spread evenly over the other tokens, as label smoothing
spreads it in a teacher.

Shape suffixes: N target positions without padding, D model dimension, K tokens of the teacher, J =
K + 1 tokens with the label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from nmt.core.config import Config
from nmt.core.errors import CheckpointError, ConfigError
from nmt.data.batching import Batch
from nmt.model.build import max_positions
from nmt.model.seq2seq import Seq2Seq
from nmt.models import discovery
from nmt.runs.model_files import ModelFiles
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizers import tokenizer_file
from nmt.training.loss import chunk_size


@dataclass(frozen=True)
class Teacher:
    """A model to distill."""

    model: Seq2Seq
    weight: float
    top_k: int

    def additional_loss(
        self, student: Seq2Seq, batch: Batch, hidden_ND: Tensor, *, smoothing: float
    ) -> Tensor:
        """Return the loss of a batch minus its label-smoothed cross-entropy, in nats, summed over
        its target tokens.

        CE(labels) and CE(q) contain the same log-sum of all logits. Their difference is linear in
        the logits: it needs those of the labels and of the K tokens, and the sum of all logits, but
        neither a softmax nor other logits.
        """
        prob_NK, index_NK, rest_N1 = self.distribution(batch)
        weight_VD = student.output_weight_VD
        bias_V = student.output_bias_V
        vocab_size = len(weight_VD)
        index_NJ = torch.cat((batch.labels_N[:, None], index_NK), 1)
        coefficient_NJ = torch.cat((torch.full_like(rest_N1, 1 - smoothing), rest_N1 - prob_NK), 1)
        uniform_N1 = smoothing / vocab_size - rest_N1
        weighted_ND = F.embedding_bag(
            index_NJ, weight_VD, mode="sum", per_sample_weights=coefficient_NJ
        )
        weighted_ND = weighted_ND + uniform_N1 * weight_VD.sum(0)
        difference = (hidden_ND.float() * weighted_ND).sum()
        if bias_V is not None:
            difference = difference + (coefficient_NJ * bias_V[index_NJ]).sum()
            difference = difference + uniform_N1.sum() * bias_V.sum()
        entropy = torch.special.entr(prob_NK).sum()
        entropy += (vocab_size - prob_NK.shape[1]) * torch.special.entr(rest_N1).sum()
        loss: Tensor = self.weight * (difference - entropy)
        return loss

    @torch.no_grad()
    def distribution(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the probabilities and ids of the most probable tokens, [N, K], and the probability
        of every other one.

        The logits are computed in chunks, so that memory does not grow with the vocabulary.
        """
        hidden_ND = self.model(
            batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N
        )
        vocab_size = len(self.model.output_weight_VD)
        top_k = min(self.top_k, vocab_size)
        chunks = [
            self.model.logits(chunk_ND).float().softmax(-1).topk(top_k)
            for chunk_ND in hidden_ND.split(chunk_size(hidden_ND.device))
        ]
        prob_NK, index_NK = (torch.cat(tensors) for tensors in zip(*chunks, strict=True))
        rest_N1 = (1 - prob_NK.sum(1, keepdim=True)).clamp(min=0) / max(1, vocab_size - top_k)
        return prob_NK, index_NK, rest_N1


def find_teacher(config: Config, run: Path | None = None) -> ModelFiles:
    """Find the teacher of a config, and check that it can teach a model that is trained in the
    directory `run`.

    Raises:
        ConfigError: the teacher is the run itself, translates in another direction, or reads other
            sources.
        CheckpointError: see `discovery.find_model`.
    """
    name = config.train.teacher
    teacher = discovery.find_model(Path(name))
    other = teacher.config.data
    data = config.data
    if run and teacher.run.resolve() == run.resolve():
        raise ConfigError(
            f"train.teacher {name} is the run that is being trained", "name another run"
        )
    if (other.src, other.tgt) != (data.src, data.tgt):
        raise ConfigError(
            f"train.teacher {name} translates from {other.src} to {other.tgt}, not from {data.src}"
            f" to {data.tgt}",
            "name a model that translates in the same direction",
        )
    if teacher.config.model.source_eos != config.model.source_eos:
        raise ConfigError(
            f"train.teacher {name} has another model.source_eos",
            f"set model.source_eos={str(teacher.config.model.source_eos).lower()}",
        )
    limit = max_positions(teacher.config.model)
    if limit and config.train.max_length > limit:
        raise ConfigError(
            f"train.max_length ({config.train.max_length}) must not exceed the positions of"
            f" train.teacher ({limit})",
            f"set train.max_length={limit}",
        )
    return teacher


def load_teacher(
    config: Config, tokenizer: Tokenizer, device: torch.device, dtype: torch.dtype
) -> Teacher | None:
    """Load the teacher of a config, if it has one, for training with the given device and dtype.

    Raises:
        CheckpointError: its weights are missing or damaged, or it has another tokenizer than the
            prepared data.
    """
    if not config.train.teacher:
        return None
    path = Path(config.train.teacher)
    loaded = discovery.load(path)
    if loaded.tokenizer.checksum != tokenizer.checksum:
        raise CheckpointError(
            f"the tokenizer of train.teacher {path} differs from the tokenizer of the prepared"
            " data",
            f"train with that of the teacher: --set tokenizer.model={tokenizer_file(loaded.run)}",
        )
    model = loaded.model.to(device).requires_grad_(False)
    model.compute_dtype = None if dtype == torch.float32 else dtype
    return Teacher(model, config.train.distill_weight, config.train.distill_top_k)
