#!/usr/bin/env bash
# A corpus of number expressions, generated from a seed and prepared for fairseq. See --help.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh" || exit 2

pair=en-de train=13000 valid=500 test=500 seed=1 merges=400

script_help() {
    cat <<HELP
Usage: $script_name --out DIR [options]

Generate a parallel corpus of numbers in words (cardinals, ordinals, years, sums,
amounts of money, dates, times) and prepare it for fairseq. It needs no download
and takes seconds. It is a real translation task: German puts the units before the
tens, Russian inflects. The same seed gives the same corpus. No sentence occurs
twice on either side, so the three sets share no sentence. There are 21,185,060
different sentences; generating nearly all of them takes long.

  --pair PAIR      en-de (default), de-en, en-ru or ru-en
  --train N        training pairs (default: 13000)
  --valid N        validation pairs (default: 500)
  --test N         test pairs (default: 500)
  --seed N         seed of the random sentences (default: 1)

${common_help/MERGES/400}

Example:
  $script_name --out data/numbers --pair en-ru --train 5000 --seed 2
HELP
}

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    case $1 in
        --pair) need_value "$@"; pair=$2; shift 2 ;;
        --train) need_positive "$@"; train=$2; shift 2 ;;
        --valid) need_positive "$@"; valid=$2; shift 2 ;;
        --test) need_positive "$@"; test=$2; shift 2 ;;
        --seed) need_number "$@"; seed=$2; shift 2 ;;
        *) common_option "$@"; shift "$used" ;;
    esac
done
set_pair "$pair" en-de de-en en-ru ru-en
corpus=(data_prep.lib.numbers_corpus --source-lang "$source_lang" --target-lang "$target_lang"
    --train "$train" --valid "$valid" --test "$test" --seed "$seed")
check_options() {
    [ $((10#$train + 10#$valid + 10#$test)) -le 500000 ] || "$python" -m "${corpus[@]}" --only-check raw
}
begin

step raw --out raw/{train,valid,test}.{"$source_lang","$target_lang"} --do "${corpus[@]}" raw
manifest_options+=(--seed "$seed" --tool num2words --tool Babel)
tokenise_all train valid test
finish
