#!/usr/bin/env bash
# Sentence pairs of one's own, from raw text to bin/. See --help.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh" || exit 2

merges=8000 pair="" from_dir="" seed=1 ratio="" longest=250 pairs=all keeping=() bpe=""
train=() valid="" test_sources=() held_out=() added=() listed_files=() named=()

script_help() {
    cat <<HELP
Usage: $script_name --out DIR --pair PAIR --train SOURCE [options]
       $script_name --out DIR --add-test SOURCE

Prepare sentence pairs of one's own, of any two languages, for fairseq.

A SOURCE is a prefix of two files, as texts/news for texts/news.en and texts/news.ru,
with one sentence a line, or one file with both sides: .tsv or .txt (source, tab,
target; the other way round if its name has the other order, as in news.ru-en.tsv; a
header with the two languages, or source and target, is skipped) or .tmx. All may have
.gz at the end.

  --pair PAIR      source and target, such as en-ru
  --train SOURCE   training pairs; may be repeated
  --valid SOURCE   validation pairs. Without it, sentences are held out of --train
  --test SOURCE    test pairs; further ones become test1, test2, ... Without it,
                   sentences are held out
  --valid-lines N, --test-lines N
                   number of pairs that are held out (default: 1000, but at most a
                   tenth of the clean pairs)
  --hold-out-by LANG
                   the language whose sentences decide which pairs are held out
                   (default: the source; the same for both directions, if given)
  --seed N         seed of all choices (default: 1)
  --pairs N        draw N of the clean training pairs at random; they stay in order
                   (default: all)
  --ratio R        largest ratio of the lengths of two training sentences (default:
                   1.5; 2 for languages without spaces)
  --max-length N   largest number of tokens of a training sentence (default: 250)
  --keep-all       drop no pair for its length or an empty side, and none for a
                   sentence in a given validation or test set; for published sets
  --keep-overlap   do not drop training pairs for a sentence in a given validation or
                   test set, nor validation pairs for one in a test set
  --name NAME      name of the corpus in prep.json and in signatures of results
                   (default: bitext)
  --from-dir DIR   short for --train DIR/train --valid DIR/valid --test DIR/test
  --add-test SOURCE
                   add a test set to the finished preparation in DIR, with its codes
                   and dictionaries; may be repeated. Warns if pairs have a
                   sentence in the training set

Training pairs are dropped if a side is empty or too long, if the lengths differ too
much, or if one of the two sentences is in the validation or a test set (without
regard to case and spacing). dropped.tsv lists them with the reason, prep.json has
the counts. Pairs of a given validation set are dropped if a test set has one of
their sentences.

multi30k.sh, tatoeba.sh and wmt14.sh unpack published files and then call this
script. For such scripts, sources in DIR/raw and DIR/corpora/raw are used where they
are, and prep.json lists the files of --source-file (may be repeated) in their place.

Languages that the Moses tokeniser does not know (zh, ja, th, ...) get sentencepiece
by default. prep.json has sacreBLEU's tokeniser for each language.

${common_help/MERGES/8000}

Examples:
  $script_name --out data/enru --pair en-ru --train texts/news --train texts/web.tmx
  $script_name --out data/enja --pair en-ja --train ja.tsv.gz --test-lines 2000
  $script_name --out data/enru --add-test texts/newstest2014
HELP
}

need_name() {
    need_value "$@"
    [[ $2 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] \
        || usage_error "$1: '$2' is not a name of letters, digits, '.', '_' and '-'"
}

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    named+=("$1")
    case $1 in
        --pair) need_value "$@"; pair=$2; shift 2 ;;
        --train) need_value "$@"; train+=("$(absolute "$2")"); shift 2 ;;
        --valid) need_value "$@"; valid=$(absolute "$2"); shift 2 ;;
        --test) need_value "$@"; test_sources+=("$(absolute "$2")"); shift 2 ;;
        --valid-lines | --test-lines) need_positive "$@"; held_out+=("$1" "$2"); shift 2 ;;
        --hold-out-by) need_value "$@"; held_out+=("$1" "$2"); shift 2 ;;
        --seed) need_number "$@"; seed=$2; shift 2 ;;
        --pairs) need_value "$@"; [ "$2" = all ] || need_positive "$@"; pairs=$2; shift 2 ;;
        --ratio) need_ratio "$@"; ratio=$2; shift 2 ;;
        --max-length) need_positive "$@"; longest=$2; shift 2 ;;
        --keep-all | --keep-overlap) keeping+=("$1"); shift ;;
        --source-file) need_value "$@"; listed_files+=("$(absolute "$2")"); shift 2 ;;
        --name) need_name "$@"; corpus_name=$2; shift 2 ;;
        --from-dir) need_value "$@"; from_dir=$(absolute "$2"); shift 2 ;;
        --add-test) need_value "$@"; added+=("$(absolute "$2")"); shift 2 ;;
        *) common_option "$@"; shift "$used" ;;
    esac
done
if [ -n "$from_dir" ]; then
    [ ${#train[@]} -eq 0 ] && [ -z "$valid" ] && [ ${#test_sources[@]} -eq 0 ] \
        || usage_error "--from-dir goes without --train, --valid and --test"
    train=("$from_dir/train") valid=$from_dir/valid test_sources=("$from_dir/test")
fi
for option in ${held_out[@]+"${held_out[@]}"}; do
    case $option in
        --valid-lines) [ -z "$valid" ] || usage_error "--valid-lines goes without --valid" ;;
        --test-lines) [ ${#test_sources[@]} -eq 0 ] || usage_error "--test-lines goes without --test" ;;
    esac
done
check_options() {
    if [ ${#added[@]} -gt 0 ]; then
        local option
        for option in "${named[@]}"; do
            case $option in
                --out | --add-test | --workers | --python) ;;  # the last two change no result
                *) usage_error "--add-test goes with --out alone, without $option" ;;
            esac
        done
        [ -d "$out" ] || data_error "$out: no such folder; prepare the corpus first"
        return
    fi
    [ -n "$pair" ] || usage_error "--pair is needed, such as --pair en-ru"
    need_pair "$pair"
    local number
    for number in "${!held_out[@]}"; do
        [ "${held_out[number]}" != --hold-out-by ] \
            || [[ ${held_out[number + 1]} =~ ^($source_lang|$target_lang)$ ]] \
            || usage_error "--hold-out-by: '${held_out[number + 1]}' is not one of: $source_lang $target_lang"
    done
    [ ${#train[@]} -gt 0 ] || usage_error "--train is needed (or --from-dir): there is nothing to download"
    choose_bpe
    [ -n "$ratio" ] || ratio=$("$python" -m data_prep.lib.languages --ratio "$source_lang" "$target_lang")
}
begin

if [ ${#added[@]} -gt 0 ]; then
    "$python" -m data_prep.lib.add_test "${added[@]}"
    exit
fi

languages=(--source-lang "$source_lang" --target-lang "$target_lang")

# in_place SOURCE: tells if a calling script has put a source where it belongs. Sets prefix.
# Without a calling script, such a source is the user's, and would be overwritten.
in_place() {
    prefix=${1#"$PWD/"}
    [[ $prefix != "$1" && $prefix =~ ^(corpora/)?raw/[^/]+$ ]] || return 1
    [ -n "$handed_over" ] \
        || usage_error "$1: lies where this script writes; move your files to a folder outside of $PWD/raw and $PWD/corpora"
}

# read_step NAME PREFIX SOURCES...: reads pairs into PREFIX.LANG.
read_step() {
    local name=$1 prefix=$2 listed files=()
    shift 2
    listed=$("$python" -m data_prep.lib.bitext files "${languages[@]}" "$@")
    mapfile -t files <<<"$listed"
    source_files+=("${files[@]}")
    step "$name" --in "${files[@]}" --out "$prefix.$source_lang" "$prefix.$target_lang" \
        --do data_prep.lib.bitext read "${languages[@]}" --out "$prefix" "$@"
}

# sides PREFIX...: sets files to the two files of each prefix.
sides() {
    local each
    files=()
    for each in "$@"; do
        files+=("$each.$source_lang" "$each.$target_lang")
    done
}

# The training pairs: corpora/raw/train, and others that are in place. raw/train itself is whole.
corpora=() elsewhere=() divided=yes
for source in "${train[@]}"; do
    if ! in_place "$source"; then
        elsewhere+=("$source")
    elif [ "$prefix" = raw/train ]; then
        divided=""
    else
        corpora+=("${prefix##*/}")
    fi
done
unpacked=${corpora[*]-}
if [ ${#elsewhere[@]} -gt 0 ]; then
    corpora+=(train)
    read_step raw.train corpora/raw/train "${elsewhere[@]}"
fi

sides ${corpora[@]+"${corpora[@]/#/corpora/raw/}"}
inputs=(${files[@]+"${files[@]}"}) dividing=(--raw-folder corpora/raw)
sides raw/train
outputs=("${files[@]}")
if [ -z "$valid" ]; then
    sides raw/valid
    outputs+=("${files[@]}")
else
    if ! in_place "$valid"; then
        prefix=corpora/raw/valid
        read_step raw.valid "$prefix" "$valid"
        sides raw/valid
        outputs+=("${files[@]}")
    fi
    sides "$prefix"
    inputs+=("${files[@]}") dividing+=(--valid "$prefix")
fi
if [ ${#test_sources[@]} -gt 0 ]; then
    tests=()
    for source in "${test_sources[@]}"; do
        name=test
        [ ${#tests[@]} -eq 0 ] || name=test${#tests[@]}
        tests+=("$name")
        if ! in_place "$source" || [ "$prefix" != "raw/$name" ]; then
            read_step "raw.$name" "raw/$name" "$source"
            manifest_options+=(--test-source "$source")
        fi
        sides "raw/$name"
        inputs+=("${files[@]}") dividing+=(--test "raw/$name")
    done
else
    sides raw/test
    outputs+=("${files[@]}")
fi
source_files+=(${listed_files[@]+"${listed_files[@]}"})

if [ -z "$divided" ]; then
    [ ${#outputs[@]} -eq 2 ] && [ ${#corpora[@]} -eq 0 ] \
        || usage_error "--train: $PWD/raw/train is what this script writes; give other files"
    tokenise_all train valid "${tests[@]}"
    finish
    exit
fi
if [ "$bpe" = subword-nmt ]; then
    for name in "${corpora[@]}"; do
        for lang in "$source_lang" "$target_lang"; do
            step "corpora.tok.$name.$lang" --in "corpora/raw/$name.$lang" \
                --out "corpora/tok/$name.$lang" --do data_prep.lib.tokenise --lang "${lang%%[-_]*}" \
                "corpora/raw/$name.$lang" "corpora/tok/$name.$lang" --workers "$workers"
        done
    done
    sides "${corpora[@]/#/corpora/tok/}"
    inputs+=("${files[@]}") dividing+=(--tok-folder corpora/tok)
    sides tok/train
    outputs+=("${files[@]}")
fi
[ "$pairs" = all ] || dividing+=(--pairs "$pairs")
step divide --in "${inputs[@]}" --out "${outputs[@]}" dropped.tsv dropped.json \
    --do data_prep.lib.bitext divide "${languages[@]}" "${dividing[@]}" \
    ${held_out[@]+"${held_out[@]}"} --seed "$seed" --ratio "$ratio" --max-length "$longest" \
    ${keeping[@]+"${keeping[@]}"} "${corpora[@]}"
manifest_options+=(--seed "$seed" --dropped)
[ "$pairs" = all ] || manifest_options+=(--option "pairs=$pairs")
[[ " ${keeping[*]-} " == *" --keep-all "* ]] \
    || manifest_options+=(--option "ratio=$ratio" --option "max-length=$longest")
[ -z "$unpacked" ] || manifest_options+=(--option "corpora=$unpacked")
tokenise_all valid "${tests[@]}"
finish
