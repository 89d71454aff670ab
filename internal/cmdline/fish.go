package cmdline

import "strings"

// fishScript completes in fish 3 and later.
func fishScript(p *Program) string {
	s := &script{}
	s.line("# Completion of %[1]s in fish: %[1]s completion fish | source\n", p.Name)
	fishTable(s, p, "commands", "The names that can follow the words of a command.", func(c *Command) []string { return lastWords(below(p, c)) })
	fishTable(s, p, "valued", "The options of a command that take a value.", valued)
	s.WriteString(strings.ReplaceAll(fishFunctions, "PROGRAM", p.Name))
	for _, c := range everyCommand(p) {
		fishCommand(s, p, c)
	}
	return s.String()
}

// fishTable writes a function that prints, for the words of a command, a list of words,
// one in each line.
func fishTable(s *script, p *Program, name, text string, words func(c *Command) []string) {
	s.line("# %s\nfunction __%s_%s\n    switch $argv[1]", text, p.Name, name)
	for _, c := range everyCommand(p) {
		if list := words(c); len(list) > 0 {
			s.line("        case %s\n            printf '%%s\\n' %s", fishQuoted(c.key()), strings.Join(list, " "))
		}
	}
	s.line("    end\nend\n")
}

// fishCommand writes the candidates that can follow the words of a command.
func fishCommand(s *script, p *Program, c *Command) {
	here := "complete -c " + p.Name + " -n " + fishQuoted("__"+p.Name+"_at "+fishQuoted(c.key()))
	first := "complete -c " + p.Name + " -n " + fishQuoted("__"+p.Name+"_first "+fishQuoted(c.key()))
	s.line("")
	list := below(p, c)
	for i, name := range lastWords(list) {
		s.line("%s -f -a %s -d %s", first, name, fishQuoted(brief(list[i].Summary)))
	}
	if len(c.Commands) == 0 {
		s.line("%s%s", here, fishCandidates(p, c.operands()))
	} else {
		s.line("%s -f", here)
	}
	for _, o := range c.within() {
		line := here
		for _, n := range o.Names {
			if long, ok := strings.CutPrefix(n, "--"); ok {
				line += " -l " + long
			} else {
				line += " -s " + strings.TrimPrefix(n, "-")
			}
		}
		if o.Value != "" {
			line += " -r" + fishCandidates(p, candidatesFor(o.Value))
		}
		s.line("%s -d %s", line, fishQuoted(brief(o.Text)))
		if len(o.Off) > 0 {
			s.line("%s -l %s -d %s", here, strings.TrimPrefix(o.Off[0], "--"), fishQuoted("not: "+brief(o.Text)))
		}
	}
}

// fishCandidates returns the options of complete that name the candidates for a value
// or an operand.
func fishCandidates(p *Program, of candidates) string {
	switch of.from {
	case files:
		return " -F"
	case targets:
		return " -F -a " + fishQuoted("(__"+p.Name+"_hosts)")
	case directories:
		return " -f -a " + fishQuoted("(__fish_complete_directories)")
	case devices:
		return " -f -a " + fishQuoted("(command ls /sys/class/infiniband 2>/dev/null)")
	}
	if len(of.words) > 0 {
		return " -f -a " + fishQuoted(strings.Join(of.words, " "))
	}
	return " -f"
}

// fishQuoted returns text as one word of fish.
func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

const fishFunctions = `# Prints the words of the command before the cursor, and whether another one
# can follow.
function __PROGRAM_state
    set -l command ''
    set -l open yes
    set -l skip 0
    set -l ended 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        test $ended = 1; and continue
        switch $word
            case --
                set ended 1
                set open no
            case '--*'
                contains -- $word (__PROGRAM_valued $command); and set skip 1
            case '-?*'
                # Of letters that stand together the last one may want a value.
                set -l letters (string split '' -- (string sub -s 2 -- $word))
                set -l left (count $letters)
                for letter in $letters
                    set left (math $left - 1)
                    if contains -- -$letter (__PROGRAM_valued $command)
                        test $left = 0; and set skip 1
                        break
                    end
                end
            case '*'
                if test $open = yes; and contains -- $word (__PROGRAM_commands $command)
                    set command (string trim -- "$command $word")
                else
                    set open no
                end
        end
    end
    printf '%s\n' $command $open
end

# Whether the words of the command are these.
function __PROGRAM_at
    set -l state (__PROGRAM_state)
    test "$state[1]" = "$argv[1]"
end

# Whether they are, and another one can follow.
function __PROGRAM_first
    set -l state (__PROGRAM_state)
    test "$state[1]" = "$argv[1]"; and test "$state[2]" = yes
end

# The hosts that ssh knows by name, behind a user's name too.
function __PROGRAM_hosts
    set -l current (commandline -ct)
    if test -z "$current"; or string match -q '*/*' -- $current
        return
    end
    set -l user (string match -r '^[^@]*@' -- $current)
    for host in (__fish_print_hostnames | string match -r '^[[:alnum:]][[:alnum:]._-]*$')
        printf '%s%s:\tHost\n' "$user" $host
    end
end
`
