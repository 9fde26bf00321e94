#!/usr/bin/env bash
# Sentence pairs of one's own, from raw text to bin/. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

merges=8000 pair="" from_dir=""

script_help() {
    cat <<HELP
Usage: $script_name --out DIR --from-dir DIR --pair PAIR [options]

Prepare sentence pairs of one's own for fairseq: three pairs of files, with one
sentence a line.

  --from-dir DIR   folder with train.LANG, valid.LANG and test.LANG of both
                   languages, plain or with .gz
  --pair PAIR      source and target, such as en-ru

${common_help/MERGES/8000}

Example:
  $script_name --out data/enru --from-dir ~/enru --pair en-ru
HELP
}

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    case $1 in
        --pair) need_value "$@"; pair=$2; shift 2 ;;
        --from-dir) need_value "$@"; from_dir=$(absolute "$2"); shift 2 ;;
        *) common_option "$@"; shift "$used" ;;
    esac
done
check_options() {
    [ -n "$pair" ] || usage_error "--pair is needed, such as --pair en-ru"
    [[ $pair =~ ^[a-z]{2,3}-[a-z]{2,3}$ ]] \
        || usage_error "--pair: '$pair' is not source-target, such as en-ru"
    set_pair "$pair" "$pair"
    [ -n "$from_dir" ] || usage_error "--from-dir is needed: there is nothing to download"
}
begin

for split in train valid test; do
    source_file=$(find_file "$from_dir/$split.$source_lang")
    target_file=$(find_file "$from_dir/$split.$target_lang")
    source_files+=("$source_file" "$target_file")
    pair_step "$split" "$source_file" "$target_file"
done
tokenise_all train valid test
finish
