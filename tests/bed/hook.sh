# shellcheck shell=bash
# hook.sh: for scripts that add to an unpacked kernel module; to be sourced.

hook() { # FILE SED-EXPRESSION: fails where the expression finds no place in FILE
  sed -i.orig "$2" "$1"
  if cmp -s "$1" "$1.orig"; then
    echo "$(basename "$0"): no place found in $1 for: $2" >&2
    exit 1
  fi
}
