package cmdline

import "strings"

// zshScript completes in zsh 5 and later, as a file in $fpath or when sourced.
func zshScript(p *Program) string {
	s := &script{}
	s.line("#compdef %s", p.Name)
	s.line("# Completion of %[1]s in zsh: source <(%[1]s completion zsh), or as _%[1]s in a folder of $fpath.\n", p.Name)
	s.line("# What can follow the words of a command, as _arguments takes it: the names of\n# subcommands, of options that take a value, and all options with what they want.")
	s.line("_%s_command() {", p.Name)
	s.line("  commands=() valued=() specs=()")
	s.line("  case $1 in")
	for _, c := range everyCommand(p) {
		s.line("  (%s)", quoted(c.key()))
		s.line("    commands=(%s)", strings.Join(lastWords(below(p, c)), " "))
		s.line("    valued=(%s)", strings.Join(valued(c), " "))
		s.line("    specs=(")
		for _, spec := range zshSpecs(p, c) {
			s.line("      %s", quoted(spec))
		}
		s.line("    ) ;;")
	}
	s.line("  esac\n}\n")
	s.line("# The commands that can come first, beside what else can.")
	s.line("_%s_first() {\n  local -a descriptions", p.Name)
	s.line("  descriptions=(")
	for i, name := range lastWords(below(p, &p.Commands[0])) {
		s.line("    %s", quoted(zshColons(name)+":"+zshColons(brief(p.Commands[i+1].Summary))))
	}
	s.line("  )\n  ((${#commands})) && _describe command descriptions\n  %s\n}", strings.TrimSpace(zshAction(p, p.Commands[0].operands())))
	s.WriteString(strings.ReplaceAll(sshHosts+zshFunctions, "PROGRAM", p.Name))
	return s.String()
}

// zshSpecs returns the arguments of _arguments for a command.
func zshSpecs(p *Program, c *Command) []string {
	var specs []string
	for _, o := range c.within() {
		for _, n := range o.Names {
			spec := "*" + n
			if o.Value != "" && strings.HasPrefix(n, "--") {
				spec += "=" // --name=value and --name value
			} else if o.Value != "" {
				spec += "+" // -nvalue and -n value
			}
			spec += "[" + zshText(brief(o.Text)) + "]"
			if o.Value != "" {
				spec += ":" + zshColons(o.Value) + ":" + zshAction(p, candidatesFor(o.Value))
			}
			specs = append(specs, spec)
		}
		if len(o.Off) > 0 {
			specs = append(specs, "*"+o.Off[0]+"["+zshText("not: "+brief(o.Text))+"]")
		}
	}
	switch {
	case len(c.Words) == 0:
		return append(specs, "1: :_"+p.Name+"_first", "*:operand:"+zshAction(p, c.operands()))
	case len(c.Commands) > 0:
		one := "1:command:(("
		for i, name := range lastWords(c.Commands) {
			one += zshColons(name) + `\:"` + zshText(brief(c.Commands[i].Summary)) + `" `
		}
		return append(specs, strings.TrimSpace(one)+"))")
	}
	return append(specs, "*:operand:"+zshAction(p, c.operands()))
}

// zshAction returns the action of _arguments for a value or an operand. A space only
// shows the message.
func zshAction(p *Program, of candidates) string {
	switch {
	case of.from == files:
		return "_files"
	case of.from == directories:
		return "_files -/"
	case of.from == targets:
		return "_" + p.Name + "_targets"
	case of.from == devices:
		return "_" + p.Name + "_devices"
	case len(of.words) > 0:
		return "(" + strings.Join(of.words, " ") + ")"
	}
	return " "
}

// zshText returns text for the brackets of _arguments.
func zshText(text string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`, `"`, `\"`, "`", "\\`", "$", `\$`).Replace(text)
}

// zshColons returns text for a place between colons.
func zshColons(text string) string {
	return strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(text)
}

const zshFunctions = `
# Those hosts, behind a user's name too.
_PROGRAM_add_hosts() {
  local -a found
  found=(${(f)"$(_PROGRAM_hosts)"})
  compset -P '*@'
  compadd "$@" -S : -a found
}

_PROGRAM_targets() {
  if [[ $PREFIX == */* || -z $PREFIX ]]; then
    _files
  else
    _alternative 'files:file:_files' 'hosts:host:_PROGRAM_add_hosts'
  fi
}

_PROGRAM_devices() {
  local -a found
  found=(/sys/class/infiniband/*(N:t))
  compadd -a found
}

# Reads letters of options that stand together; the last one may want a value.
_PROGRAM_letters() {
  local -i letter
  for ((letter = 2; letter <= ${#1}; letter++)); do
    if ((${valued[(Ie)-${1[letter]}]})); then
      ((letter == ${#1})) && skip=1
      return
    fi
  done
}

_PROGRAM() {
  local command= word
  local -a commands valued specs rest
  local -i i skip=0 ended=0
  _PROGRAM_command ''
  rest=($words[1])
  # The words of the command are taken out: what is left is for _arguments.
  for ((i = 2; i < CURRENT; i++)); do
    word=$words[i]
    if ((skip)); then
      skip=0
    elif [[ $word == -- ]]; then
      commands=() ended=1
    elif ((ended)); then
      :
    elif [[ $word == --* ]]; then
      ((${valued[(Ie)$word]})) && skip=1
    elif [[ $word == -?* ]]; then
      _PROGRAM_letters $word
    elif ((${commands[(Ie)$word]})); then
      command=${command:+$command }$word
      _PROGRAM_command $command
      continue
    else
      commands=()
    fi
    rest+=("$word")
  done
  words=("${rest[@]}" "${(@)words[CURRENT,-1]}")
  CURRENT=$((${#rest} + 1))
  _arguments -s -S : "${specs[@]}"
}

if [[ $funcstack[1] == _PROGRAM ]]; then
  _PROGRAM "$@"
else
  compdef _PROGRAM PROGRAM
fi
`
