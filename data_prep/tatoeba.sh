#!/usr/bin/env bash
# Tatoeba sentence pairs, from the list of manythings.org to bin/. See --help.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh" || exit 2

default_url=https://www.manythings.org/anki
pair=en-de merges=8000 valid=1000 test=1000 seed=1 from_dir="" url="" sha256=() bpe=""
# The names of the lists, by language code.
lists="af:afr ar:ara az:aze be:bel bg:bul bn:ben ca:cat cs:ces da:dan de:deu el:ell eo:epo es:spa
et:est eu:eus fa:pes fi:fin fr:fra ga:gle gl:glg he:heb hi:hin hr:hrv hu:hun hy:hye id:ind is:isl
it:ita ja:jpn ka:kat ko:kor la:lat lt:lit lv:lvs mk:mkd mr:mar ms:zsm nl:nld no:nob pl:pol pt:por
ro:ron ru:rus sk:slk sl:slv sq:sqi sr:srp sv:swe sw:swh ta:tam te:tel th:tha tr:tur uk:ukr ur:urd
vi:vie zh:cmn"

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
  --pair PAIR      en-de (default), or English and another language, as en-fr, ja-en;
                   any list by the three letters of its name, as en-yue
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
[[ $pair =~ ^(en-[a-z]{2,3}|[a-z]{2,3}-en)$ ]] || usage_error "--pair: '$pair' is not one of: en-XX, XX-en"
need_pair "$pair"
foreign_lang=$target_lang
[ "$foreign_lang" != en ] || foreign_lang=$source_lang
list_name=""
[ ${#foreign_lang} -eq 2 ] || list_name=$foreign_lang
for known in $lists; do
    [ "${known%:*}" != "$foreign_lang" ] || list_name=${known#*:}
done
[ -n "$list_name" ] \
    || usage_error "--pair: the name of the list of '$foreign_lang' is not known; give its three letters, as en-yue"
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

corpus=corpora/raw/$list_name
step unpack --in "$list" --out "$corpus".{en,"$foreign_lang"} \
    --do data_prep.lib.tatoeba --language "$foreign_lang" --member "$list_name.txt" \
    ${sha256[@]+"${sha256[@]}"} "$list" "$corpus"
# The English sentences decide in both directions, so that both have the same sets.
go_on_as_bitext --train "$PWD/$corpus" --keep-all --seed "$seed" \
    --valid-lines "$valid" --test-lines "$test" --hold-out-by en
