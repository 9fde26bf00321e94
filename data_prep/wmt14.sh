#!/usr/bin/env bash
# WMT'14, English and another language, from the published archives to bin/. See --help.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh" || exit 2

mirror=https://www.statmt.org
pair=en-de merges=32000 pairs=2500000 seed=1 ratio="" longest=250 from_dir="" yandex=""
known_checksums=yes downloading=() bpe=""

script_help() {
    cat <<HELP
Usage: $script_name --out DIR [--pair PAIR] [--pairs N] [options]

Prepare a sample of the training data of WMT'14 for fairseq, with newstest2013 for
validation and newstest2014 (the full set) for testing.

  en-de   Europarl v7, Common Crawl, News Commentary v9     (1.7 GB to download)
  en-cs, en-fr   the same, without the larger corpora that are not in these archives
          (CzEng, UN, 10^9 French-English)
  en-ru   Common Crawl, News Commentary v9, Wiki Headlines, and with --yandex the
          Yandex 1M corpus                                  (1.1 GB to download)

Training pairs are drawn at random from the clean pairs, as defined by Moses'
clean-corpus-n: 1 to 250 tokens on each side, and neither side more than 1.5 times
as long as the other, after tokenisation and before BPE. Duplicates are kept. The
pairs stay in the order of the corpora; the same seed draws the same pairs.

  --pair PAIR      en-de (default), en-cs, en-fr, en-ru or the other direction. With
                   --from-dir English and any language that the files are in
  --pairs N        number of training pairs to draw, or "all" (default: 2500000)
  --seed N         seed of the random choice of pairs (default: 1)
  --ratio R        largest ratio of the two lengths (default: 1.5; 2 for languages
                   without spaces)
  --max-length N   largest number of tokens on each side (default: 250)
  --yandex FILE    1mcorpus.zip, for en-ru. It is never downloaded, since its licence
                   requires a form: https://translate.yandex.ru/corpus
                   Without it there are not enough pairs for the default --pairs.
  --mirror URL     download from URL, with the paths of statmt.org
                   (default: $mirror)
  --no-known-checksums
                   accept files whose checksums differ from the published ones
  --attempts N     downloads: give up after N attempts without progress (default: 5)
  --pause SECONDS  downloads: pause before the second attempt; doubles (default: 2)
  --from-dir DIR   download nothing and take from DIR
                   - the published archives in it, by their names:
                     training-parallel-europarl-v7.tgz, training-parallel-
                     commoncrawl.tgz, training-parallel-nc-v9.tgz, wiki-titles.tgz,
                     dev.tgz, test-full.tgz
                   - all plain pairs NAME.en and NAME.de (or .ru), also as .gz, as
                     further training data
                   - newstest2013.LANG or valid.LANG, in place of dev.tgz
                   - newstest2014.en-de.LANG, newstest2014.LANG or test.LANG, or the
                     .sgm files newstest2014-deen-*, in place of test-full.tgz

Downloads go to DIR/download and resume after an interruption. They are checked
against the published checksums, and in later runs against
DIR/download/SHA256SUMS. DIR/corpora contains each source, raw and tokenised.

${common_help/MERGES/32000}

Examples:
  $script_name --out data/wmt14-en-de --pair en-de
  $script_name --out data/wmt14-en-ru --pair en-ru --yandex ~/1mcorpus.zip --pairs all
  $script_name --out data/own --from-dir my-texts --pairs all --merges 8000
HELP
}

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    case $1 in
        --pair) need_value "$@"; pair=$2; shift 2 ;;
        --pairs) need_value "$@"; [ "$2" = all ] || need_positive "$@"; pairs=$2; shift 2 ;;
        --seed) need_number "$@"; seed=$2; shift 2 ;;
        --ratio) need_ratio "$@"; ratio=$2; shift 2 ;;
        --max-length) need_positive "$@"; longest=$2; shift 2 ;;
        --yandex) need_value "$@"; yandex=$(absolute "$2"); shift 2 ;;
        --mirror) need_url "$@"; mirror=$2; shift 2 ;;
        --no-known-checksums) known_checksums=no; shift ;;
        --attempts) need_positive "$@"; downloading+=(--attempts "$2"); shift 2 ;;
        --pause)
            need_value "$@"
            [[ $2 =~ ^[0-9]{1,3}(\.[0-9]{1,9})?$ ]] \
                || usage_error "--pause: '$2' is not a number of seconds below 1000"
            downloading+=(--pause "$2")
            shift 2
            ;;
        --from-dir) need_value "$@"; from_dir=$(absolute "$2"); shift 2 ;;
        *) common_option "$@"; shift "$used" ;;
    esac
done
need_pair "$pair"
[[ $pair =~ ^en-|-en$ ]] || usage_error "--pair: '$pair' is not one of: en-XX, XX-en; see bitext.sh for others"
foreign_lang=$target_lang
[ "$foreign_lang" != en ] || foreign_lang=$source_lang
[ -n "$from_dir" ] || [[ $foreign_lang =~ ^(cs|de|fr|ru)$ ]] \
    || usage_error "--pair: no training data of '$pair' to download; give --from-dir"
[ -z "$yandex" ] || [ "$foreign_lang" = ru ] || usage_error "--yandex is for --pair en-ru alone"
begin

listing=(list --target "$foreign_lang")
if [ -n "$from_dir" ]; then
    listing+=(--folder "$from_dir")
else
    listing+=(--mirror "$mirror" --to download ${downloading[@]+"${downloading[@]}"})
    [ "$known_checksums" = yes ] || listing+=(--no-known-checksums)
fi
[ -z "$yandex" ] || listing+=(--yandex "$yandex")
listed=$("$python" -m data_prep.lib.wmt14 "${listing[@]}")

# Each source becomes two plain files: corpora/raw/NAME.LANG, raw/valid.LANG, raw/test.LANG.
training=()
while IFS=$'\t' read -r -u 3 name first second; do
    files=("$first") prefix=raw/$name
    [ -z "$second" ] || files+=("$second")
    source_files+=("${files[@]}")
    case $name in
        valid | test) ;;
        *) prefix=corpora/raw/$name; training+=(--train "$PWD/$prefix") ;;
    esac
    step "unpack.$name" --in "${files[@]}" --out "$prefix.en" "$prefix.$foreign_lang" \
        --do data_prep.lib.wmt14 unpack --target "$foreign_lang" --name "$name" \
        --out "$prefix" "${files[@]}"
done 3<<<"$listed"

go_on_as_bitext "${training[@]}" --valid "$PWD/raw/valid" --test "$PWD/raw/test" --keep-overlap \
    --pairs "$pairs" --seed "$seed" --max-length "$longest" ${ratio:+--ratio "$ratio"}
