#!/usr/bin/env bash
# Ablation of the architecture: the Transformer of the config with one change at a time. The recurrent model needs AdamW
# and additive attention sinusoidal positions, as in the config multi30k-small, the default.
#
#   scripts/experiments/architectures.sh
#   SEEDS=1 LIMIT=2m scripts/experiments/architectures.sh
: "${CONFIG:=multi30k-small}"
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
options=("$@")
change() { sweep "architectures/$1" ${options[@]+"${options[@]}"} "${@:2}"; }
change arch --grid model.arch=transformer,rnn
change norm_position --grid model.norm_position=post
change norm --grid model.norm=rms
change activation --grid model.activation=gelu,swiglu
change attention --grid model.attention_score=additive
change window --grid model.attention_window=2,8
change kv_heads --grid model.kv_heads=1,2
change layer_sharing --grid model.layer_sharing=2
change deep_shallow --set model.decoder_layers=1 --grid model.encoder_layers=3,6
