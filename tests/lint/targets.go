package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// shellWords are commands of bash itself, and words of its grammar.
var shellWords = set(`if then elif else fi while until for do done case esac in function select time ! { } [ [[
	cd pwd echo printf read mapfile set shift export local declare exit return trap wait kill exec command eval test true false
	break continue getopts source type ulimit umask unset let shopt times builtin hash`)

func set(words string) map[string]bool {
	s := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		s[word] = true
	}
	return s
}

// target is one of a Makefile.
type target struct {
	needs  []string // targets: what it depends on, and what its recipe has make make
	recipe []string // lines
}

var (
	targetLine = regexp.MustCompile(`^([a-z%][a-zA-Z0-9_%-]*):([^=]*)$`)
	makeWord   = regexp.MustCompile(`\$\(MAKE\)(?: -\S+)* ([a-z-]+)`)
)

// readMakefile reads the targets and their recipes. Lines that end with a
// backslash go on in the next.
func readMakefile(text string) map[string]target {
	targets, name := map[string]target{}, ""
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if recipe, ok := strings.CutPrefix(line, "\t"); ok && name != "" {
			t := targets[name]
			t.recipe = append(t.recipe, strings.ReplaceAll(strings.TrimLeft(recipe, "@-"), "$$", "$"))
			for _, m := range makeWord.FindAllStringSubmatch(recipe, -1) {
				t.needs = append(t.needs, m[1])
			}
			targets[name] = t
			continue
		}
		line, _, _ = strings.Cut(line, "#")
		if m := targetLine.FindStringSubmatch(line); m != nil {
			name = m[1]
			t := targets[name]
			t.needs = append(t.needs, strings.Fields(m[2])...)
			targets[name] = t
		}
	}
	return targets
}

// work is all that a target comes to: the files whose programs it starts, and
// the packages that it installs.
type work struct {
	files     map[string]bool
	installed map[string]bool
}

// target reports what a target starts and nobody installs, and notes in run
// which scripts targets run.
func (m *module) target(name string, targets map[string]target, run map[string]bool) {
	w := work{files: map[string]bool{}, installed: map[string]bool{}}
	m.collect(name, targets, &w, map[string]bool{})
	for file := range w.files {
		run[file] = true
		for _, program := range m.started[file] {
			pkg := m.Packages[program]
			if m.Optional[program] == "" && pkg != "" && !w.installed[pkg] {
				m.found = append(m.found, fmt.Sprintf("%s:1: starts %s, but make %s does not install %s: add it to a .ci/need line", file, program, name, pkg))
			}
		}
	}
}

func (m *module) collect(name string, targets map[string]target, w *work, seen map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	t := targets[name]
	if len(t.recipe) > 0 {
		file := "Makefile, " + name
		s := readScript(strings.Join(t.recipe, "\n"))
		m.started[file] = nil // another target may have been here
		m.shell(file, s)
		w.files[file] = true
		m.runs(".", s, w)
	}
	for _, folder := range m.Starts[name] {
		for file := range maps.Keys(m.started) {
			within := folder == "." || strings.HasPrefix(file, folder+"/")
			if path.Ext(file) == ".go" && within && (!m.programs[file] || path.Dir(file) == folder) && !slices.Contains(m.Skips[name], file) {
				w.files[file] = true
			}
		}
	}
	for _, other := range t.needs {
		m.collect(other, targets, w, seen)
	}
}

// needLine is what installs packages, in a script and in the Makefile.
var needLine = regexp.MustCompile(`(?:\$\(NEED\)|\.ci/need"?) ([a-z0-9:.+ -]+)`)

// runs notes what a script in folder installs and which scripts it runs, with theirs.
func (m *module) runs(folder string, s script, w *work) {
	for _, line := range needLine.FindAllStringSubmatch(s.text, -1) {
		for word := range strings.FieldsSeq(line[1]) {
			w.installed[word[strings.Index(word, ":")+1:]] = true
		}
	}
	all := slices.Concat(s.commands, s.words)
	for _, text := range s.quoted {
		q := readScript(text)
		all = slices.Concat(all, q.commands, q.words)
	}
	for _, word := range all {
		word = strings.Trim(word[strings.LastIndex(word, "=")+1:], `"`)
		if rest, ok := strings.CutPrefix(word, "$here/"); ok {
			word = path.Join(folder, rest)
		}
		if word == "$(NEED)" {
			word = ".ci/need"
		}
		if other, ok := m.scripts[word]; ok && !w.files[word] {
			w.files[word] = true
			m.runs(path.Dir(word), other, w)
		}
	}
}
