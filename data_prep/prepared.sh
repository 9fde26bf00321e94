#!/usr/bin/env bash
# A preparation that is finished, for studies. See --help.
set -euo pipefail

script_name=$(basename "$0")
out="" from_dir=""

fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}

while [ $# -gt 0 ]; do
    case $1 in
        --help | -h)
            cat <<HELP
Usage: $script_name --out DIR --from-dir PREPARED

Copy a finished preparation (a folder with prep.json), so that a study can use it.

  --out DIR            folder for the copy (required)
  --from-dir PREPARED  the folder that another script of data_prep wrote (required)
  --workers N          accepted, as by the other scripts, and not needed
HELP
            exit
            ;;
        --out | --from-dir | --workers)
            [ $# -ge 2 ] && [ -n "$2" ] || fail "$1 needs a value; see $script_name --help" 2
            case $1 in
                --out) out=$2 ;;
                --from-dir) from_dir=$2 ;;
            esac
            shift 2
            ;;
        *) fail "unknown option '$1'; see $script_name --help" 2 ;;
    esac
done
[ -n "$out" ] || fail "--out is needed; see $script_name --help" 2
[ -n "$from_dir" ] || fail "--from-dir is needed; see $script_name --help" 2
[ -f "$from_dir/prep.json" ] || fail "$from_dir: no prep.json, no finished preparation"

mkdir -p -- "$out" 2>/dev/null || fail "$out: cannot make this folder"
if cmp -s -- "$from_dir/prep.json" "$out/prep.json"; then
    echo "skip: $out (copied before)" >&2
    exit
fi
rm -rf -- "$out/prep.json" "$out/bin" "$out/bpe" "$out/raw"
for part in raw bpe bin; do
    cp -R -- "$from_dir/$part" "$out/$part"
done
cp -- "$from_dir/prep.json" "$out/.prep.json.tmp"
mv -- "$out/.prep.json.tmp" "$out/prep.json"  # last, as by the other scripts
echo "done: $out" >&2
