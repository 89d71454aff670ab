package cmdline

import (
	"slices"
	"strings"
)

// bashScript completes in bash 4 and later.
func bashScript(p *Program) string {
	s := &script{}
	s.line("# Completion of %[1]s in bash: source <(%[1]s completion bash)\n", p.Name)
	s.line("# What can follow the words of a command: the names of options, those that take\n# a value, subcommands, and what operands can be.")
	s.line("_%s_command() {", p.Name)
	s.line("    options='' valued='' commands='' words='' from=''")
	s.line("    case $1 in")
	for _, c := range everyCommand(p) {
		operands := c.operands()
		commands := lastWords(below(p, c))
		if len(c.Commands) > 0 {
			operands = candidates{} // its usage has the names of its commands in that place
		}
		s.line("    %s)", quoted(c.key()))
		s.line("        options=%s", quoted(strings.Join(names(c.within()), " ")))
		s.line("        valued=%s", quoted(strings.Join(valued(c), " ")))
		s.line("        commands=%s words=%s from=%s ;;", quoted(strings.Join(commands, " ")), quoted(strings.Join(operands.words, " ")), quoted(operands.from.text()))
	}
	s.line("    esac\n}\n")
	bashValues(s, p)
	s.WriteString(strings.ReplaceAll(sshHosts+bashFunctions, "PROGRAM", p.Name))
	return s.String()
}

// bashValues writes the possible values of options. Options that are the same in
// several commands share a line.
func bashValues(s *script, p *Program) {
	type line struct{ words, from string }
	var order []line
	patterns := map[line][]string{}
	for _, c := range everyCommand(p) {
		for _, o := range c.options() {
			of := candidatesFor(o.Value)
			l := line{strings.Join(of.words, " "), of.from.text()}
			if l == (line{}) {
				continue
			}
			if !slices.Contains(order, l) {
				order = append(order, l)
			}
			for _, n := range o.Names {
				patterns[l] = append(patterns[l], quoted(c.key()+" "+n))
			}
		}
	}
	s.line("# What the value of an option can be.\n_%s_value() {", p.Name)
	s.line("    words='' from=''\n    case $1 in")
	for _, l := range order {
		s.line("    %s)\n        words=%s from=%s ;;", strings.Join(patterns[l], " | \\\n        "), quoted(l.words), quoted(l.from))
	}
	s.line("    esac\n}")
}

// bashFunctions read the words before the cursor. By default bash divides words at =
// and : too (COMP_WORDBREAKS).
const bashFunctions = `
# Adds the hosts that begin like the word at the cursor, which may begin with a
# user's name.
_PROGRAM_add_hosts() {
    local user='' host
    [[ $current == *@* ]] && user=${current%%@*}@
    while read -r host; do
        [[ $user$host == "$current"* ]] && COMPREPLY+=("$user$host:")
    done < <(_PROGRAM_hosts)
}

# Adds what words and from say of the word at the cursor.
_PROGRAM_add() {
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    case $from in
    files | targets)
        if [[ $from == targets && $current && $current != */* ]]; then
            _PROGRAM_add_hosts
            # The colon of a host's name must not be quoted as a file's would be.
            ((${#COMPREPLY[@]})) && compopt -o nospace 2>/dev/null && return
        fi
        compopt -o filenames 2>/dev/null
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
        ;;
    directories)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        ;;
    devices)
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(cd /sys/class/infiniband 2>/dev/null && compgen -f -- "$current")
        ;;
    esac
}

# Reads an operand, or a word of the command.
_PROGRAM_operand() {
    if [[ " $commands " == *" $1 "* ]]; then
        command="${command:+$command }$1"
        _PROGRAM_command "$command"
    else
        commands=''
    fi
}

# Reads letters of options that stand together; the last one may want a value.
_PROGRAM_letters() {
    local letter
    for ((letter = 1; letter < ${#1}; letter++)); do
        if [[ " $valued " == *" -${1:letter:1} "* ]]; then
            ((letter == ${#1} - 1)) && option=-${1:letter:1}
            return
        fi
    done
}

_PROGRAM() {
    local current=${COMP_WORDS[COMP_CWORD]} command='' option='' ended='' prefix='' word i
    local options valued commands words from
    COMPREPLY=()
    _PROGRAM_command ''
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == = || $word == : ]]; then
            # What follows belongs to the word before it.
            [[ $option ]] && continue
            ((i + 1 == COMP_CWORD)) && return
            ((i++))
        elif [[ $option ]]; then
            option=''
        elif [[ $ended ]]; then
            continue
        elif [[ $word == -- ]]; then
            ended=yes commands=''
        elif [[ $word == --* ]]; then
            [[ " $valued " == *" $word "* ]] && option=$word
        elif [[ $word == -?* ]]; then
            _PROGRAM_letters "$word"
        else
            _PROGRAM_operand "$word"
        fi
    done
    case $current in
    =) current='' ;;
    :) return ;;
    --*=*) [[ $ended$option ]] || { option=${current%%=*} prefix=${current%%=*}= current=${current#*=}; } ;;
    esac
    if [[ $option ]]; then
        _PROGRAM_value "$command $option"
    elif [[ $current == -* && ! $ended ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        return
    else
        words="$words $commands"
    fi
    _PROGRAM_add
    [[ $prefix ]] && COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
    return 0
}

complete -F _PROGRAM PROGRAM
`
