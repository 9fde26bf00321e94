#!/usr/bin/env bash
# Multi30k (task 1), image captions, from raw text to bin/. See --help.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh" || exit 2

default_url=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw
pair=en-de merges=8000 from_dir="" url="" downloading=() bpe=""

script_help() {
    cat <<HELP
Usage: $script_name --out DIR [--from-dir DIR | --url URL] [options]

Prepare Multi30k, task 1: 29,000 image captions for training, 1,014 for
validation (val) and the 1,000 of test_2016_flickr, for fairseq.

  --from-dir DIR   take train.LANG, val.LANG and test_2016_flickr.LANG from DIR,
                   plain or with .gz
  --url URL        download them (.gz) from the folder URL into DIR/download, and
                   resume interrupted downloads (default without --from-dir:
                   $default_url)
  --pair PAIR      en-de (default), or any other two languages that the files are in
                   (published: en, de, fr, cs)
  --no-known-checksums
                   accept downloaded files whose checksums differ from the published
                   ones (with --url a difference is a note, not an error)

${common_help/MERGES/8000}

Example:
  $script_name --out data/multi30k && fairseq-train data/multi30k/bin ...
  fairseq-generate data/multi30k/bin --path checkpoint_best.pt \\
      --tokenizer moses --remove-bpe --source-lang en --target-lang de \\
      --required-batch-size-multiple 1

The last option is necessary: with its default of 8, fairseq 0.12 does not translate
up to seven sentences of the last batch.
HELP
}

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    case $1 in
        --pair) need_value "$@"; pair=$2; shift 2 ;;
        --from-dir) need_value "$@"; from_dir=$(absolute "$2"); shift 2 ;;
        --url) need_url "$@"; url=$2; downloading+=(--url "$2"); shift 2 ;;
        --no-known-checksums) downloading+=(--no-known-checksums); shift ;;
        *) common_option "$@"; shift "$used" ;;
    esac
done
need_pair "$pair"
[ -z "$from_dir" ] || [ -z "$url" ] || usage_error "give --from-dir or --url, not both"
begin

if [ -z "$from_dir" ]; then
    from_dir=$PWD/download
    "$python" -m data_prep.lib.multi30k --to download ${downloading[@]+"${downloading[@]}"} \
        "$source_lang" "$target_lang"
fi

for names in train:train valid:val test:test_2016_flickr; do
    source_file=$(find_file "$from_dir/${names#*:}.$source_lang")
    target_file=$(find_file "$from_dir/${names#*:}.$target_lang")
    source_files+=("$source_file" "$target_file")
    pair_step "${names%:*}" "$source_file" "$target_file"
done
go_on_as_bitext --train "$PWD/raw/train" --valid "$PWD/raw/valid" --test "$PWD/raw/test"
