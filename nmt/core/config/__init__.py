"""All options of nmt as frozen dataclasses.

A config file needs to contain only the values that differ from the defaults. The string below each
field is its documentation: `nmt config --options` prints it. Spec strings such as
`beam(beam_size=4)` select a function and its options (see `nmt.core.registry`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from nmt.core.ranges import NotNegative, Positive, Probability, Range, Share, Size

FINE_TUNING = "finetune"
"""Built-in config of --init-from."""
MAX_VOCAB_SIZE = 2**20


@dataclass(frozen=True)
class DataConfig:
    """Training, validation and test data."""

    src: str = "en"
    """Source language code."""
    tgt: str = "de"
    """Target language code."""
    train: tuple[str, ...] = ("phrasebook",)
    """Training corpora: names from `nmt data list`, or files(train='PREFIX'). All accept weight=0.5
    and tag=True."""
    temperature: Annotated[float, Range(1, hint="1 uses each pair once; 5 is common")] = 1.0
    """Sampling temperature T: a corpus of n pairs has a share proportional to weight · n^(1/T). 1:
    no upsampling."""
    replay: tuple[str, ...] = ()
    """Corpora to mix into fine-tuning, so that the model keeps its quality on other text; see
    train.replay_share."""
    valid: str = ""
    """Corpus that provides the validation split. Empty: the first training corpus."""
    test: str = ""
    """Corpus that provides the test split. Empty: the first training corpus."""
    general_test: tuple[str, ...] = ()
    """Test sets of other domains, compared after fine-tuning. Empty: from the start model's data or
    data.replay."""
    clean: tuple[str, ...] = ("normalize", "length(max=200)", "ratio(max=3.0)", "dedup")
    """Cleaning steps for the training data, in order."""
    placeholders: bool = False
    """Train the model to copy URLs, e-mail addresses, code and other protected spans as
    placeholders."""


@dataclass(frozen=True)
class TokenizerConfig:
    """SentencePiece tokenizer, shared by both languages."""

    model_type: str = "bpe"
    """Segmentation algorithm: bpe or unigram."""
    vocab_size: Annotated[int, Range(1, MAX_VOCAB_SIZE)] = 8000
    """Vocabulary size, including special tokens and 256 byte tokens. A small corpus may not support
    a large one."""
    max_training_sentences: Positive = 2_000_000
    """Maximum number of sentences to train the tokenizer on; a larger corpus is sampled."""
    model: str = ""
    """Existing SentencePiece model file, for example from `nmt tokenizer train`. Empty: train one
    on the corpus."""


@dataclass(frozen=True)
class ModelConfig:
    """Model architecture. Symbols in parentheses are those of Vaswani et al. 2017, table 3."""

    arch: str = "transformer"
    """Architecture: transformer or rnn. rnn uses dim, *_layers, dropout, tie_embeddings,
    output_bias, source_eos."""
    dim: Size = 256
    """Dimension of embeddings and hidden states (d_model)."""
    heads: Positive = 4
    """Number of attention heads (h). Must divide dim."""
    ffn_dim: Size = 1024
    """Inner dimension of the feed-forward network (d_ff)."""
    encoder_layers: Annotated[int, Range(1, 1000)] = 3
    """Number of encoder layers (N)."""
    decoder_layers: Annotated[int, Range(1, 1000)] = 3
    """Number of decoder layers (N)."""
    decoder: str = "attention"
    """How decoder layers read the target so far: attention, or ssru, a recurrence that is faster in
    searches."""
    norm_position: str = "pre"
    """Position of the normalization layer: post (original Transformer) or pre (trains at higher
    learning rates)."""
    norm: str = "layer"
    """Normalization: layer (LayerNorm) or rms (RMSNorm)."""
    norm_epsilon: Share = 0.0
    """Number added to the variance in a normalization. 0: 1e-5 for layer, 1e-6 for rms."""
    activation: str = "relu"
    """Activation function of the feed-forward network: relu, gelu, silu or swiglu (adds a third
    weight matrix)."""
    position_encoding: str = "sinusoidal"
    """Position encoding with its options: sinusoidal, rotary, shaw, t5, ...; see
    docs/variants.md."""
    attention_score: str = "dot"
    """Attention scoring function: dot (scaled dot product) or additive."""
    attention_window: NotNegative = 0
    """Self-attention window: tokens visible on each side. 0: unlimited."""
    kv_heads: NotNegative = 0
    """Number of key-value heads (grouped-query attention). Must divide heads. 0: equal to heads."""
    layer_sharing: Positive = 1
    """Number of consecutive layers that share their weights. 1: no sharing."""
    dropout: Share = 0.1
    """Dropout probability of embeddings and sublayer outputs."""
    attention_dropout: Share = 0.0
    """Dropout probability of attention weights."""
    activation_dropout: Share = 0.0
    """Dropout probability after the activation function of the feed-forward network."""
    tie_embeddings: bool = True
    """Share one weight matrix between source embedding, target embedding and output projection."""
    output_bias: bool = False
    """Add a bias to the output projection, as Marian does."""
    target_bos: bool = True
    """Start the decoder with the embedding of the start token; false: with zeros, as Marian
    does."""
    source_eos: bool = True
    """End source sentences with the end token. Models of OpenNMT-py do not."""


@dataclass(frozen=True)
class TrainConfig:
    """Training, validation and checkpoints."""

    steps: Positive = 10_000
    """Number of updates (optimizer steps); checkpoints are named step-N."""
    batch_tokens: Positive = 2048
    """Maximum number of tokens per batch, including padding, counted on the longer side; of packed
    batches, the target tokens."""
    grad_accumulation: Positive = 1
    """Number of batches per update (gradient accumulation)."""
    max_length: Positive = 256
    """Maximum number of tokens per side, including the end token. Longer training pairs are skipped
    and counted."""
    schedule: str = "linear(peak=2e-3, warmup=400)"
    """Learning-rate schedule, with options: noam, inverse_sqrt, linear, cosine, constant, wsd
    (warmup-stable-decay)."""
    optimizer: str = "adamw"
    """Optimizer: adamw, or muon(momentum=0.95, ns_steps=4, lr_scale=1.0); lr_scale is a factor for
    matrices."""
    beta1: Share = 0.9
    """Adam: decay rate of the first moment."""
    beta2: Share = 0.98
    """Adam: decay rate of the second moment."""
    eps: Annotated[float, Range(above=0, below=1)] = 1e-9
    """Adam: epsilon."""
    weight_decay: Annotated[float, Range(0)] = 0.0
    """Decoupled weight decay (AdamW). 0: off."""
    clip_norm: Annotated[float, Range(0)] = 1.0
    """Maximum gradient norm. 0: no clipping."""
    label_smoothing: Share = 0.1
    """Label smoothing: probability mass spread evenly over the vocabulary (Szegedy et al. 2016). 0:
    off."""
    ema: Share = 0.0
    """Decay of an exponential moving average of the weights, which is used for inference. 0:
    off."""
    init_from: str = ""
    """Run, checkpoint, pretrained or published model to fine-tune. Empty: random initialization."""
    replay_share: Share = 0.5
    """Share of the training pairs of an epoch that come from data.replay, at least 0 and below
    1."""
    teacher: str = ""
    """Run, checkpoint or pretrained model to distill; it must have the same tokenizer. Empty: no
    distillation."""
    distill_weight: Probability = 0.5
    """Weight w of the KL divergence from the teacher, between 0 and 1; the cross-entropy has weight
    1 - w."""
    distill_top_k: Positive = 8
    """Number of most probable tokens of the teacher's distribution; others share the rest of the
    probability."""
    source_noise: tuple[str, ...] = ()
    """Noise added to source sentences, sampled per pair and epoch: lowercase(p=0.1),
    no_punctuation(p=0.1), ..."""
    subword_regularization: str = ""
    """Segmentation sampled for each pair in each epoch: bpe_dropout(p=0.1) or unigram(alpha=0.2).
    Empty: off."""
    packing: bool = True
    """On a GPU, put sentences side by side in batches of one shape, whose update is a CUDA graph,
    where model and options allow it. false: padded batches, and no graph."""
    compile: tuple[str, ...] = ("auto",)
    """Parts to compile with torch.compile: loss, layers (of packed batches). auto: both for packed
    batches. Empty: none."""
    all_reduce_precision: str = "fp32"
    """Type in which several processes exchange gradients: fp32 or bf16, which halves the traffic
    and rounds."""
    weight_rounding: str = ""
    """Round matrices to 8 bits while the gradient is computed: int8, with a scale per output, or
    firefox, with one per matrix. Empty: off."""
    valid_every: Positive = 500
    """Number of updates between validations. Each validation saves a checkpoint."""
    valid_pairs: NotNegative = 0
    """Number of validation pairs to translate for BLEU and chrF, evenly spaced. 0: all."""
    valid_search: str = "greedy"
    """Search algorithm for validation."""
    best_metric: str = "bleu"
    """Metric for the best checkpoint and early stopping: loss, bleu, chrf, ter or one of a
    plug-in."""
    patience: NotNegative = 0
    """Number of validations without improvement before training stops early. 0: no early
    stopping."""
    keep_last: Positive = 2
    """Number of latest checkpoints to keep."""
    keep_best: Positive = 1
    """Number of best checkpoints to keep."""
    average_last: NotNegative = 0
    """Number of latest checkpoints to average at the end of training. 0: no averaging."""
    calibration_pairs: NotNegative = 500
    """Maximum number of validation pairs to calibrate the confidence on at the end of training. 0:
    no calibration."""
    num_samples: NotNegative = 2
    """Number of sample translations to log at each validation."""
    log_every: Positive = 50
    """Number of updates between lines of metrics.jsonl."""
    loggers: tuple[str, ...] = ()
    """Loggers beside metrics.jsonl: tensorboard, wandb(project='nmt'), mlflow(experiment='nmt'),
    trackio(project='nmt')."""


@dataclass(frozen=True)
class Config:
    """A complete experiment."""

    seed: Annotated[int, Range(0, 2**63 - 1)] = 1
    """Random seed for initialization, data order, dropout and noise."""
    search: str = "beam(beam_size=4)"
    """Default search of the commands that translate, and of calibration and comparison after
    training."""
    lowercase_all_caps: bool = False
    """Lowercase all-caps inputs (with at least four letters) before translation."""
    plugins: tuple[str, ...] = ()
    """Python modules that add components, such as a search; see docs/plugins.md."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
