package cmdline

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Complete returns the completions of the last of the words, which follow the program's name, with
// descriptions. from says what the shell itself is to offer: "files", "directories" or "none".
func Complete(p *Program, words []string) (from string, found []Item) {
	c, next := p.All[0], p.All[1:]
	value, ended := "", false // the name of the next word's value; whether "--" was seen
	current := words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		named := slices.IndexFunc(next, func(n Command) bool { return n.Word() == word })
		switch {
		case value != "":
			value = ""
		case ended || word == "--":
			ended, next = true, nil
		case strings.HasPrefix(word, "-"):
			value = c.value(word)
		case named >= 0:
			c, next = next[named], next[named].Commands
		default:
			next = nil
		}
	}
	name, _, joined := strings.Cut(current, "=")
	switch {
	case value != "":
		found, from = candidates(value, "")
	case joined && strings.HasPrefix(current, "--") && !ended:
		found, from = candidates(c.value(name), name+"=")
	case strings.HasPrefix(current, "-") && !ended:
		for _, o := range c.Options() {
			for _, n := range append(o.Names, o.Off) {
				found = append(found, Item{n, Brief(o.Text)})
			}
		}
	default:
		if len(c.Commands) == 0 {
			if found, from = candidates(c.Operands, ""); found == nil {
				found, from = sshHosts(current), "files"
			}
		}
		for _, n := range next {
			found = append(found, Item{n.Word(), n.Summary})
		}
	}
	if strings.Contains(current, ":") { // files of another host are not known here
		from = ""
	}
	slices.SortFunc(found, func(a, b Item) int { return strings.Compare(a.Term, b.Term) })
	found = slices.CompactFunc(found, func(a, b Item) bool { return a.Term == b.Term })
	return cmp.Or(from, "none"), slices.DeleteFunc(found, func(f Item) bool { return f.Term == "" || !strings.HasPrefix(f.Term, current) })
}

// sshHosts returns the hosts that ssh knows by name, for a word that may begin with a
// user's name. It omits patterns, and names that a shell could misinterpret.
func sshHosts(current string) (found []Item) {
	if current == "" || strings.ContainsAny(current, "/:") {
		return nil
	}
	home, _ := os.UserHomeDir()
	config, _ := os.ReadFile(filepath.Join(home, ".ssh/config"))
	known, _ := os.ReadFile(filepath.Join(home, ".ssh/known_hosts"))
	everyone, _ := os.ReadFile("/etc/ssh/ssh_known_hosts")
	names := regexp.MustCompile(`(?mi)^[ \t]*host[ \t=](.*)$`).FindAllStringSubmatch(string(config), -1)
	names = append(names, regexp.MustCompile(`(?m)^([^ \n]+) `).FindAllStringSubmatch(string(known)+"\n"+string(everyone), -1)...)
	plain := regexp.MustCompile(`^[\pL\pN][\pL\pN._-]*$`)
	for _, m := range names {
		for _, host := range strings.FieldsFunc(m[1], func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
			if plain.MatchString(host) {
				found = append(found, Item{current[:strings.IndexByte(current, '@')+1] + host + ":", "host"})
			}
		}
	}
	return found
}

// value returns the name of the value that the word after this one must be, or "" if it
// is no value.
func (c *Command) value(word string) string {
	option := func(name string) Option {
		all := c.Options()
		if i := slices.IndexFunc(all, func(o Option) bool { return slices.Contains(o.Names, name) }); i >= 0 {
			return all[i]
		}
		return Option{}
	}
	for i := 1; i < len(word) && word[1] != '-'; i++ { // of several letters, the last one takes the value
		if option("-"+word[i:i+1]).Value != "" {
			word = "-" + word[i:]
			break
		}
	}
	return option(word).Value
}

// candidates returns the completions of a value or an operand of that name, after a prefix.
func candidates(name, prefix string) (found []Item, from string) {
	words, from := candidatesFor(name)
	if from == "devices" {
		devices, _ := os.ReadDir("/sys/class/infiniband")
		for _, d := range devices {
			words = append(words, d.Name())
		}
		from = ""
	}
	for _, w := range words {
		found = append(found, Item{prefix + w, ""})
	}
	return found, from
}

// candidatesFor returns the candidates for a value or an operand by its name. Words in
// lower case between bars are literal.
func candidatesFor(name string) (words []string, from string) {
	sources := map[string]string{"FILE": "files", "PATH": "files", "MANIFEST": "files", "DIR": "directories", "DEV": "devices"}
	for part := range strings.SplitSeq(name, "|") {
		if source := sources[part]; source != "" {
			from = source
		} else if part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") == "" {
			words = append(words, part)
		}
	}
	return words, from
}
