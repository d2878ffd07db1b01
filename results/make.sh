#!/usr/bin/env bash
# Makes every table of this folder: some two hours on two cores, half of it five fine-tunings (--device cuda: minutes), half the larger encoders.
# The data sets are found through BERTFLOW_DATA or in ../shared/data.
set -euo pipefail
cd "$(dirname "$0")/.."
export BERTFLOW_DATA=${BERTFLOW_DATA:-../shared/data}
data=$BERTFLOW_DATA
python results/compare.py --encoder mini

run() { printf '\n`%s`\n\n' "$*"; "$@" --quiet --markdown; }
{
  printf '# The tables of the paper, ours beside them\n\nEach by the command above it; `results/make.sh` runs them all.\n'
  run bertflow reproduce table1
  run bertflow reproduce table2
  bertflow finetune-nli mini-nli --train "$data/nli/snli_train_18k.tsv" --train "$data/nli/mnli_train_10k.tsv" --learning-rate 1e-4 --quiet
  run bertflow reproduce table3 --encoder mini-nli
  run bertflow reproduce table4 --encoder mini-nli
  run bertflow reproduce table5
  run bertflow reproduce table6
  run bertflow reproduce table8 --learning-rate 1e-4
} > results/paper-tables.md
python results/report_stsb.py
bertflow reproduce figure1 --output results/figure1.png
bertflow reproduce figure2 --output results/figure2.png

# Beyond the paper; the text is Wikipedia, .txt or .txt.xz, one paragraph a line; the other encoders come from PyPI.
text=${BERTFLOW_TEXT:-../shared/text}
python results/fit_mini_flow.py "$text"
python results/refit.py "$text"
python results/tried.py
python results/search.py --encoder mini
python results/encoders.py encoders
python results/beyond.py --encoder mini
python results/beyond.py --seeds 3 --encoder mini-nli --encoder encoders/SmolLM2-135M --encoder encoders/gemma-3-270m
python results/advise.py measure mini --tasks STS-B,STS12,STS13,semrel,parade,qqp,dbpedia,cisi,banking77,lcqmc
python results/advise.py measure encoders/all-MiniLM-L6-v2
for name in gte-small bert-base-cased SmolLM2-135M; do python results/advise.py measure "encoders/$name" --small; done
python results/advise.py measure encoders/albert-tiny-chinese --small --tasks zh-sts-dev,lcqmc,bq
python results/advise.py few
python results/advise.py write
