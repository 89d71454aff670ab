# zsh -f capture.zsh SCRIPT LINE prints what zsh offers for the end of LINE, a
# line each. Completion runs in an interactive zsh on a terminal of its own,
# which reads this file with the word child before SCRIPT; its compadd says what
# it is given.
if [[ $1 == child ]]; then
  PROMPT=
  RPROMPT=
  autoload -U compinit
  compinit -u -d ~/.zcompdump
  source $2
  bindkey '^I' complete-word
  compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
      builtin compadd "$@" # only asks what would match
      return
    fi
    local -a hits suffix
    builtin compadd -A hits "$@"
    zparseopts -E S:=suffix
    local hit
    for hit in $hits; do
      print -r -- "HIT $IPREFIX$hit${suffix[2]}"
    done
    builtin compadd "$@"
  }
  finish() { exit }
  comppostfuncs=(finish)
  print READY
  return
fi

zmodload zsh/zpty
zpty child zsh -f -i
zpty -w child "source ${(q)0} child ${(q)1}"
zpty -r child chunk '*READY*'
zpty -w -n child "$2"$'\t'
while zpty -r child chunk; do
  print -rn -- "$chunk"
done | tr '\r' '\n' | sed -n 's/.*HIT //p'
zpty -d child
