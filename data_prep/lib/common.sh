# Common options of the preparation scripts, and the steps from raw text to bin/. Sourced by them.
# shellcheck shell=bash
set -euo pipefail
unset CDPATH  # with it, cd may enter another folder and print its path

data_prep_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script_name=$(basename "$0")
corpus_name=${script_name%.sh}

# Defaults, which each script may change before it reads its options.
out="" python="" bpe=subword-nmt dictionaries=joined workers="" truecase=""
source_files=()      # the sources in prep.json
manifest_options=()  # further --option, --seed, --tool for prep.json
tests=(test)         # the test sets; further ones are test1, test2, ...

common_help='Common options:
  --out DIR        folder for all results (required)
  --merges N       number of byte-pair merges, learned on both languages together;
                   with sentencepiece the number of pieces (default: MERGES)
  --bpe KIND       subword-nmt (default): Moses tokenisation, then subword-nmt.
                   sentencepiece: a sentencepiece BPE model on the raw text
  --truecase       give words at the beginning of a sentence their usual case (Moses
                   truecasing); translations get it back
  --separate-dictionaries
                   one fairseq dictionary for each language (default: a joined
                   dictionary, --joined-dictionary)
  --workers N      number of processes (default: one for each core); the output does
                   not depend on it
  --python FILE    the Python to use (default: .venv/bin/python beside data_prep,
                   else python3)
  --help           print this text

Result, in DIR:
  raw/    {train,valid,test}.{source,target}  one sentence per line; the test
          target is the reference for sacreBLEU
  tok/    tokenised text (not with sentencepiece); true/ with --truecase
  bpe/    text in sub-words; codes and vocab.* (or sentencepiece.model)
  bin/    binarised data for fairseq-train and fairseq-generate
  prep.json   counts, options, versions, checksums; written last

A second run skips finished steps ("skip: ...") and repeats those that changed
options or inputs affect. It resumes an interrupted run, and waits while another
run is working in the same folder.
Exit status: 0 done, 1 bad data, 2 bad usage.'

usage_error() {
    echo "error: $1; see $script_name --help" >&2
    exit 2
}

data_error() {
    echo "error: $1" >&2
    exit 1
}

# --name=value becomes --name value. Sets the array words.
split_equals() {
    words=()
    local word
    for word in "$@"; do
        case $word in
            --*=*) words+=("${word%%=*}" "${word#*=}") ;;
            *) words+=("$word") ;;
        esac
    done
}

need_value() {
    [ $# -ge 2 ] && [ -n "$2" ] || usage_error "$1 needs a value"
}

need_number() {
    need_value "$@"
    [[ $2 =~ ^[0-9]{1,15}$ ]] || usage_error "$1: '$2' is not a whole number"
}

need_positive() {
    need_number "$@"
    [ "$2" -ge 1 ] || usage_error "$1: $2 is less than 1"
}

need_ratio() {
    need_value "$@"
    [[ $2 =~ ^[1-9][0-9]*(\.[0-9]+)?$ ]] || usage_error "$1: '$2' is not a number from 1"
}

need_url() {
    need_value "$@"
    [[ $2 =~ ^https?:// ]] || usage_error "$1: '$2' is not an http:// or https:// address"
    [[ $2 =~ ^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?#][!-~]*)?$ ]] \
        || usage_error "$1: '$2' is not a valid address"
}

# Reads one common option from "$@" and sets used to the number of words that it consists of.
common_option() {
    used=2
    case $1 in
        --out) need_value "$@"; out=$2 ;;
        --merges) need_positive "$@"; merges=$2 ;;
        --bpe)
            need_value "$@"
            case $2 in
                subword-nmt | sentencepiece) bpe=$2 ;;
                *) usage_error "--bpe: '$2' is neither subword-nmt nor sentencepiece" ;;
            esac
            ;;
        --workers) need_positive "$@"; workers=$2 ;;
        --python) need_value "$@"; python=$2 ;;
        --truecase) truecase=yes; used=1 ;;
        --joined-dictionary) dictionaries=joined; used=1 ;;
        --separate-dictionaries) dictionaries=separate; used=1 ;;
        --help | -h) script_help; exit 0 ;;
        *) usage_error "unknown option '$1'" ;;
    esac
}

# need_pair PAIR: sets source_lang and target_lang from a pair of any two language codes.
need_pair() {
    local code='[a-z]{2,3}(_[A-Za-z0-9]{2,8})?'
    [[ $1 =~ ^$code-$code$ ]] || usage_error "--pair: '$1' is not source-target, such as en-ru"
    source_lang=${1%-*} target_lang=${1#*-}
    [ "$source_lang" != "$target_lang" ] || usage_error "--pair: '$1' has one language twice"
}

# set_pair PAIR ALLOWED...: sets source_lang and target_lang if the pair is allowed.
set_pair() {
    local pair=$1 allowed
    shift
    for allowed in "$@"; do
        if [ "$pair" = "$allowed" ]; then
            source_lang=${pair%-*} target_lang=${pair#*-}
            return
        fi
    done
    usage_error "--pair: '$pair' is not one of: $*"
}

absolute() {
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s' "$PWD/$1" ;;
    esac
}

# choose_bpe: sets bpe, where the user left it open, to what fits the two languages.
choose_bpe() {
    bpe=$("$python" -m data_prep.lib.languages ${bpe:+--bpe "$bpe"} "$source_lang" "$target_lang") \
        || exit 2
}

# Called when Python was found and nothing has been written; scripts may define their own checks.
check_options() { :; }

# Prints the path of an existing file, NAME or NAME.gz; ends the script if there is neither.
find_file() {
    local name=$1
    if [ -f "$name" ]; then
        echo "$name"
    elif [ -f "$name.gz" ]; then
        echo "$name.gz"
    else
        data_error "$name: no such file, nor $name.gz"
    fi
}

# Sets python to one that can be run.
find_python() {
    if [ -z "$python" ]; then
        python=$data_prep_dir/../.venv/bin/python
        [ -x "$python" ] || python=python3
    fi
    case $python in
        */*) python=$(absolute "$python") ;;
    esac
    command -v "$python" >/dev/null || usage_error "--python: cannot run '$python'"
    # Makes the packages importable from any folder, and keeps Python from importing files in DIR.
    PYTHONPATH=$(cd "$data_prep_dir/.." && pwd)${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH PYTHONSAFEPATH=1 PYTHONUTF8=1
}

# Finds Python, enters DIR and locks it. To be called when all options have been read.
begin() {
    [ -n "$out" ] || usage_error "--out is needed"
    find_python
    local needed="fairseq sacremoses sentencepiece subword_nmt tqdm" lacking
    lacking=$("$python" -c 'import importlib.util as i, sys
print(*(name for name in sys.argv[1:] if not i.find_spec(name)))' $needed)
    [ -z "$lacking" ] || usage_error "$python lacks $lacking; run 'make setup' first"
    check_options
    [ -z "$truecase" ] || [ "$bpe" != sentencepiece ] \
        || usage_error "--truecase goes with --bpe subword-nmt, for tokenised text"
    if [ -z "$workers" ]; then
        workers=$("$python" -c 'from data_prep.lib.parallel import available_cores as n; print(n())')
    fi
    enter_locked
}

# Makes DIR, enters it and locks it; waits while another preparation is at work there.
enter_locked() {
    # As an absolute path, since a name such as - or -m would be an option of cd and mkdir.
    out=$(absolute "$out")
    mkdir -p "$out" 2>/dev/null || data_error "$out: cannot make this folder"
    cd "$out" 2>/dev/null || data_error "$out: cannot go into this folder"
    { : >>.lock; } 2>/dev/null || data_error "$out: cannot write here"
    # A script that goes on as bitext.sh has the lock already, and hands the open file over.
    handed_over=yes
    if ! [ /dev/fd/9 -ef .lock ]; then
        handed_over=""
        exec 9>>.lock
        "$python" -m data_prep.lib.lock 9 || exit
    fi
}

# go_on_as_bitext OPTIONS...: hands the work in DIR over to bitext.sh, with the common options.
go_on_as_bitext() {
    local file options=(--out "$PWD" --pair "$source_lang-$target_lang" --name "$corpus_name"
        --merges "$merges" --workers "$workers" --python "$python")
    [ -z "$bpe" ] || options+=(--bpe "$bpe")
    [ "$dictionaries" = joined ] || options+=(--separate-dictionaries)
    [ -z "$truecase" ] || options+=(--truecase)
    for file in ${source_files[@]+"${source_files[@]}"}; do
        options+=(--source-file "$file")
    done
    exec "$BASH" "$data_prep_dir/bitext.sh" "${options[@]}" "$@"
}

# step NAME --in FILES... --out FILES... --do MODULE ARGUMENTS...
step() {
    "$python" -m data_prep.lib.steps "$@"
}

# pair_step SPLIT SOURCE TARGET: checks two parallel files and copies them to raw/.
pair_step() {
    local split=$1 source=$2 target=$3
    local files=("raw/$split.$source_lang" "raw/$split.$target_lang")
    step "raw.$split" --in "$source" "$target" --out "${files[@]}" \
        --do data_prep.lib.corpus "$source" "$target" "${files[@]}"
}

# tokenise_all SPLITS...: from raw/ to tok/; does nothing with sentencepiece. Languages are given
# without their region, so that text that was tokenised with it is tokenised again.
tokenise_all() {
    local split lang
    [ "$bpe" = subword-nmt ] || return 0
    for lang in "$source_lang" "$target_lang"; do
        local from=() to=() both=()
        for split in "$@"; do
            from+=("raw/$split.$lang") to+=("tok/$split.$lang")
            both+=("raw/$split.$lang" "tok/$split.$lang")
        done
        step "tok.$lang" --in "${from[@]}" --out "${to[@]}" \
            --do data_prep.lib.tokenise --lang "${lang%%[-_]*}" "${both[@]}" --workers "$workers"
    done
}

# truecase_all: from tok/ to true/, with one model for each language.
truecase_all() {
    local split lang
    for lang in "$source_lang" "$target_lang"; do
        local from=() to=() both=()
        for split in train valid "${tests[@]}"; do
            from+=("tok/$split.$lang") to+=("true/$split.$lang")
            both+=("tok/$split.$lang" "true/$split.$lang")
        done
        step "truecase.learn.$lang" --in "tok/train.$lang" --out "bpe/truecase.$lang" \
            --do data_prep.lib.truecase learn --model "bpe/truecase.$lang" "tok/train.$lang"
        step "truecase.$lang" --in "bpe/truecase.$lang" "${from[@]}" --out "${to[@]}" \
            --do data_prep.lib.truecase apply --model "bpe/truecase.$lang" "${both[@]}" \
            --workers "$workers"
    done
}

# From tok/ (or raw/, for sentencepiece) to bpe/, bin/ and prep.json.
finish() {
    local split lang from module codes learned=() separate=() file sources=() pieces=() raw=()
    if [ "$bpe" = subword-nmt ]; then
        from=tok module=data_prep.lib.bpe codes=(--codes bpe/codes)
    else
        from=raw module=data_prep.lib.sentencepiece_model codes=(--model bpe/sentencepiece.model)
        learned+=(bpe/sentencepiece.vocab)
    fi
    if [ -n "$truecase" ]; then
        truecase_all
        from=true manifest_options+=(--truecase)
    fi
    local training=("$from/train.$source_lang" "$from/train.$target_lang")
    local learn=("$module" learn --merges "$merges" "${codes[@]}" "${training[@]}")
    [ "$bpe" = sentencepiece ] || learn+=(--workers "$workers")
    step bpe.learn --in "${training[@]}" --out "${codes[1]}" ${learned[@]+"${learned[@]}"} --do "${learn[@]}"

    for lang in "$source_lang" "$target_lang"; do
        local inputs=("${codes[1]}") outputs=() both=() vocabulary=()
        for split in train valid "${tests[@]}"; do
            inputs+=("$from/$split.$lang") outputs+=("bpe/$split.$lang")
            both+=("$from/$split.$lang" "bpe/$split.$lang")
        done
        pieces+=("${outputs[@]}")
        if [ "$bpe" = subword-nmt ]; then
            vocabulary=(--vocabulary "bpe/vocab.$lang") outputs+=("bpe/vocab.$lang")
        fi
        step "bpe.$lang" --in "${inputs[@]}" --out "${outputs[@]}" \
            --do "$module" apply "${codes[@]}" ${vocabulary[@]+"${vocabulary[@]}"} \
            "${both[@]}" --workers "$workers"
    done

    [ "$dictionaries" = joined ] || separate=(--separate-dictionaries)
    step bin --in "${pieces[@]}" --out bin --do data_prep.lib.binarise --tests "${tests[@]}" \
        --source-lang "$source_lang" --target-lang "$target_lang" \
        ${separate[@]+"${separate[@]}"} bpe bin

    for file in ${source_files[@]+"${source_files[@]}"}; do
        sources+=(--source "$file")
    done
    for split in train valid "${tests[@]}"; do
        raw+=("raw/$split.$source_lang" "raw/$split.$target_lang")
    done
    step prep.json --in bin "${raw[@]}" \
        ${source_files[@]+"${source_files[@]}"} --out prep.json \
        --do data_prep.lib.manifest --corpus "$corpus_name" --bpe "$bpe" --merges "$merges" \
        --source-lang "$source_lang" --target-lang "$target_lang" --tests "${tests[@]}" \
        ${separate[@]+"${separate[@]}"} ${sources[@]+"${sources[@]}"} \
        ${manifest_options[@]+"${manifest_options[@]}"}
    echo "done: $PWD" >&2
}
