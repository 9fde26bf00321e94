#!/usr/bin/env bash
# Tatoeba sentence pairs, from the list of manythings.org to bin/. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

default_url=https://www.manythings.org/anki
pair=en-de merges=8000 valid=1000 test=1000 seed=1 from_dir="" url="" sha256=() bpe=""
# The names of the lists, by language code.
lists="ar:ara bg:bul cs:ces da:dan de:deu el:ell es:spa et:est fi:fin fr:fra he:heb hi:hin hu:hun
id:ind is:isl it:ita ja:jpn ko:kor lt:lit lv:lvs nl:nld no:nob pl:pol pt:por ro:ron ru:rus sk:slk
sl:slv sr:srp sv:swe th:tha tr:tur uk:ukr vi:vie zh:cmn"

script_help() {
    cat <<HELP
Usage: $script_name --out DIR [--from-dir DIR | --url URL] [options]

Prepare the sentence pairs of the Tatoeba project, English and another language, for
fairseq. They are published as lists, in which many sentences occur more than once. No
sentence of the validation or test set, on either side, is in the training set. All
other pairs of the list are for training. Lists of two other languages are prepared by
bitext.sh --train LIST.tsv --pair PAIR.

  --from-dir DIR   take the list from DIR: deu.txt, deu.txt.gz or deu-eng.zip (fra...
                   for French, and so on); lines of english<TAB>other, a third column
                   is ignored
  --url URL        download the list into DIR/download (default without --from-dir:
                   $default_url/deu-eng.zip, ...)
  --sha256 HEX     accept only a list with this checksum (of deu.txt, unpacked). The
                   list grows every month, so its checksum is not known beforehand.
                   The release of 2018-05-13 is recognised; a note is printed for
                   every other one
  --pair PAIR      en-de (default), or English and another language, as en-fr, ja-en
  --valid N        validation pairs (default: 1000)
  --test N         test pairs (default: 1000)
  --seed N         seed of the choice of these pairs (default: 1)

${common_help/MERGES/8000}

Example:
  $script_name --out data/tatoeba --from-dir ~/Downloads --test 2000
HELP
}

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    case $1 in
        --pair) need_value "$@"; pair=$2; shift 2 ;;
        --from-dir) need_value "$@"; from_dir=$(absolute "$2"); shift 2 ;;
        --url) need_url "$@"; url=$2; shift 2 ;;
        --sha256)
            need_value "$@"
            [[ $2 =~ ^[0-9A-Fa-f]{64}$ ]] || usage_error "--sha256: '$2' is not 64 hexadecimal digits"
            sha256=(--sha256 "$2")
            shift 2
            ;;
        --valid) need_positive "$@"; valid=$2; shift 2 ;;
        --test) need_positive "$@"; test=$2; shift 2 ;;
        --seed) need_number "$@"; seed=$2; shift 2 ;;
        *) common_option "$@"; shift "$used" ;;
    esac
done
[[ $pair =~ ^(en-[a-z]{2}|[a-z]{2}-en)$ ]] || usage_error "--pair: '$pair' is not one of: en-XX, XX-en"
foreign_lang=${pair/en/} foreign_lang=${foreign_lang//-/}
list_name=""
for known in $lists; do
    [ "${known%:*}" != "$foreign_lang" ] || list_name=${known#*:}
done
[ -n "$list_name" ] \
    || usage_error "--pair: the name of the list of '$foreign_lang' is not known; use bitext.sh --train LIST"
set_pair "$pair" "$pair"
check_options() { choose_bpe; }
[ -z "$from_dir" ] || [ -z "$url" ] || usage_error "give --from-dir or --url, not both"
begin

if [ -z "$from_dir" ]; then
    url=${url:-$default_url/$list_name-eng.zip}
    list=$("$python" -m data_prep.lib.download --to download "$url")
else
    list=""
    for name in "$list_name.txt" "$list_name.txt.gz" "$list_name-eng.zip"; do
        [ -n "$list" ] || [ ! -f "$from_dir/$name" ] || list=$from_dir/$name
    done
    [ -n "$list" ] || data_error "$from_dir: has no $list_name.txt, $list_name.txt.gz or $list_name-eng.zip"
fi
source_files+=("$list")

step raw --in "$list" --out raw/{train,valid,test}.{en,"$foreign_lang"} \
    --do data_prep.lib.tatoeba --language "$foreign_lang" --member "$list_name.txt" --valid "$valid" --test "$test" --seed "$seed" \
    ${sha256[@]+"${sha256[@]}"} "$list" raw
manifest_options+=(--seed "$seed")
tokenise_all train valid test
finish
