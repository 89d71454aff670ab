package lint

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// PaperRules are the rules for a module's papers, its Markdown files.
type PaperRules struct {
	// MaxLines is the maximum length of a paper, by its path.
	MaxLines map[string]int
}

// CheckPapers reports what is wrong with the Markdown files under root, one line each as
// "file:line: what", sorted: links within the repository to missing files or headings,
// names of missing Go files, and papers that are too long. It skips the directories that
// Check skips. The error is that of reading a file.
func CheckPapers(root fs.FS, rules PaperRules) ([]string, error) {
	p, err := readPapers(root)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.texts)) {
		lines := prose(p.texts[name])
		if most, ok := rules.MaxLines[name]; ok && len(lines) > most {
			p.report(name, len(lines), "%d lines, more than %d", len(lines), most)
		}
		for i, line := range lines {
			p.links(name, i+1, line)
			p.names(name, i+1, line)
		}
	}
	for name := range rules.MaxLines {
		if _, ok := p.texts[name]; !ok {
			p.report(name, 1, "is not there")
		}
	}
	slices.Sort(p.found)
	return p.found, nil
}

// papers has all Markdown files of a module.
type papers struct {
	root  fs.FS
	texts map[string]string          // by path
	heads map[string]map[string]bool // for each paper the anchors of its headings
	files map[string]bool            // names of all Go files, without their directories
	found []string

	link, name *regexp.Regexp
}

func readPapers(root fs.FS) (*papers, error) {
	p := &papers{
		root: root, texts: map[string]string{}, heads: map[string]map[string]bool{}, files: map[string]bool{},
		link: regexp.MustCompile(`\]\(([^()\s]+)\)`),
		name: regexp.MustCompile("`([A-Za-z0-9_./*-]+\\.go)`"),
	}
	return p, eachFile(root, func(name string) error {
		switch path.Ext(name) {
		case ".go":
			p.files[path.Base(name)] = true
		case ".md":
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return fmt.Errorf("read: %w", err)
			}
			p.texts[name], p.heads[name] = string(text), anchors(string(text))
		}
		return nil
	})
}

func (p *papers) report(name string, line int, format string, args ...any) {
	p.found = append(p.found, fmt.Sprintf("%s:%d: %s", name, line, fmt.Sprintf(format, args...)))
}

// links checks the links of a line into the repository.
func (p *papers) links(name string, at int, line string) {
	for _, m := range p.link.FindAllStringSubmatch(line, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		to := name
		if file != "" {
			to = path.Join(path.Dir(name), file)
		}
		if _, err := fs.Stat(p.root, to); err != nil {
			p.report(name, at, "a link leads to %s, which is not there", to)
		} else if heads, paper := p.heads[to]; paper && anchor != "" && !heads[anchor] {
			p.report(name, at, "a link leads to %s#%s, and no heading there has that name", to, anchor)
		}
	}
}

// names checks the Go files that a line names: by their path from the module's
// root, or without one.
func (p *papers) names(name string, at int, line string) {
	for _, m := range p.name.FindAllStringSubmatch(line, -1) {
		there := p.files[m[1]]
		if strings.ContainsAny(m[1], "/*") {
			matches, err := fs.Glob(p.root, m[1])
			there = err == nil && len(matches) > 0
		}
		if !there {
			p.report(name, at, "it names %s, which is not there", m[1])
		}
	}
}

// prose returns the lines of a paper, with fenced lines replaced by empty ones.
func prose(text string) []string {
	lines, fenced := strings.Split(strings.TrimSuffix(text, "\n"), "\n"), false
	for i, line := range lines {
		if fence := strings.HasPrefix(line, "```"); fence || fenced {
			fenced = fenced != fence
			lines[i] = ""
		}
	}
	return lines
}

// anchors returns the anchors of a paper's headings, as GitHub generates them: lower-case
// letters, digits, hyphens for blanks, and no other characters. The second heading with
// the same name ends in -1.
func anchors(text string) map[string]bool {
	signs := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linked := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	all := map[string]bool{}
	for _, line := range prose(text) {
		level, title, ok := strings.Cut(line, " ")
		if !ok || level == "" || strings.Trim(level, "#") != "" {
			continue
		}
		title = linked.ReplaceAllString(strings.TrimSpace(title), "$1")
		name := strings.ReplaceAll(signs.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		free := name
		for n := 1; all[free]; n++ {
			free = fmt.Sprintf("%s-%d", name, n)
		}
		all[free] = true
	}
	return all
}
