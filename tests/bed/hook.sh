# shellcheck shell=bash
# hook.sh: for scripts that add to an unpacked kernel module; to be sourced.

hook() { # FILE SED-EXPRESSION: fails where the expression finds no place in FILE
  cp "$1" "$1.orig"
  sed -i "$2" "$1"
  if cmp -s "$1" "$1.orig"; then
    echo "$(basename "$0"): no place found in $1 for: $2" >&2
    exit 1
  fi
}
