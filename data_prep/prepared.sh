#!/usr/bin/env bash
# A preparation that is finished, for studies. See --help.
# shellcheck source=lib/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh" || exit 2

from_dir=""

split_equals "$@"
set -- ${words[@]+"${words[@]}"}
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h)
            cat <<HELP
Usage: $script_name --out DIR --from-dir PREPARED

Copy a finished preparation (a folder with prep.json), so that a study can use it.

  --out DIR            folder for the copy (required)
  --from-dir PREPARED  the folder that another script of data_prep wrote (required)
  --workers N          accepted, as by the other scripts, and not needed
  --python FILE        the Python to use (default: .venv/bin/python beside data_prep,
                       else python3)

Waits while another preparation is at work in DIR. A folder raw, bpe or bin in DIR
that no preparation wrote is left alone, and nothing is copied.
HELP
            exit
            ;;
        --out | --from-dir | --workers | --python)
            need_value "$@"
            case $1 in
                --out) out=$2 ;;
                --python) python=$2 ;;
                --from-dir) from_dir=$2 ;;
            esac
            shift 2
            ;;
        *) usage_error "unknown option '$1'" ;;
    esac
done
[ -n "$out" ] || usage_error "--out is needed"
[ -n "$from_dir" ] || usage_error "--from-dir is needed"
[ -f "$from_dir/prep.json" ] || data_error "$from_dir: no prep.json, no finished preparation"
parts=(raw bpe bin)
for part in "${parts[@]}"; do
    [ -d "$from_dir/$part" ] || data_error "$from_dir: no $part/, no finished preparation"
done
from_dir=$(absolute "$from_dir")

find_python
enter_locked
if [ -e .steps ] && ! [ -e .copied ]; then
    data_error "$out: another script has prepared data here; choose another folder"
fi
missing=""
for part in "${parts[@]}"; do
    [ -d "$part" ] || missing=$part
done
if [ -z "$missing" ] && cmp -s -- "$from_dir/prep.json" prep.json; then
    echo "skip: $out (copied before)" >&2
    exit
fi
# An interrupted copy has no prep.json, and snakemake removes it before it makes another one.
if ! [ -f prep.json ] && ! [ -f .copied ]; then
    for part in "${parts[@]}"; do
        # A copy of an earlier version has no .copied.
        ! [ -e "$part" ] || diff -rq -- "$from_dir/$part" "$part" >/dev/null 2>&1 ||
            data_error "$out: $part/ is there without a prep.json; move it away"
    done
fi
: >.copied
for part in "${parts[@]}"; do
    rm -rf -- ".$part.tmp"
    cp -R -- "$from_dir/$part" ".$part.tmp"
done
cp -- "$from_dir/prep.json" .prep.json.tmp
rm -f -- prep.json
for part in "${parts[@]}"; do
    rm -rf -- "$part"
    mv -- ".$part.tmp" "$part"
done
mv -- .prep.json.tmp prep.json  # last, as by the other scripts
echo "done: $out" >&2
