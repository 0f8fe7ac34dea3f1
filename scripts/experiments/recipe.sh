#!/usr/bin/env bash
# Ablation of the training recipe at equal time: the config with one change at a time.
#
#   scripts/experiments/recipe.sh
#   LIMIT=5m DROPOUT=0.15 scripts/experiments/recipe.sh --set train.batch_tokens=1024
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
options=("$@")
change() { sweep "recipe/$1" ${DROPOUT:+--set "model.dropout=$DROPOUT"} ${options[@]+"${options[@]}"} "${@:2}"; }
adamw=(--set train.batch_tokens=1024 --set "train.schedule=linear(peak=3e-3, warmup=300)")
change positions --grid model.position_encoding=rotary,deberta,sinusoidal
change adamw --grid train.optimizer=adamw "${adamw[@]}"
change adamw_sinusoidal --grid train.optimizer=adamw "${adamw[@]}" --set model.position_encoding=sinusoidal
change label_smoothing --grid train.label_smoothing=0
change deep_encoder --grid model.encoder_layers=6 --set model.decoder_layers=1
change vocabulary --grid tokenizer.vocab_size=4000,16000
change untied --grid model.tie_embeddings=false
change ema --grid train.ema=0.99
change average --grid train.average_last=4 --set train.keep_last=4 --set train.valid_every=50
change bpe_dropout --grid "train.subword_regularization=bpe_dropout(p=0.1)"
sweep recipe/dropout ${options[@]+"${options[@]}"} --grid model.dropout=0.1,0.2
