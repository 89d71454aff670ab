package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Programs are what a module's Go files and scripts may start, and which target
// of its Makefile sees to what they need. The scripts are those that begin with
// a line that names bash.
type Programs struct {
	// Packages names for each program the Debian package that has it. "" is for
	// those that every machine has: a minimal Debian with git, make, gcc and Go.
	Packages map[string]string
	// Optional are programs without which a target does with less, and why.
	Optional map[string]string
	// Starts names for a target of the Makefile the folders whose tests it runs,
	// with those below them, and of folders with a program the program. Its
	// scripts are found by themselves.
	Starts map[string][]string
	// Skips names for a target the test files in those folders that start
	// nothing where it runs them.
	Skips map[string][]string
	// Entries are the scripts that no target runs, because they run one.
	Entries []string
}

// CheckPrograms reports, as Check does, which programs are started under root
// that Programs does not know, and for each target the programs that are neither
// on every machine nor installed by it: by a line with .ci/need, or $(NEED) in
// the Makefile, of the target, of what it depends on, or of a script that it runs.
//
// In Go files a program is what is given to package os/exec, be it a literal, a
// constant or from a list of literals; beyond that every literal of a test that
// is the name of a program in Packages is taken for a start of it. In scripts it
// is what stands in a command's place, and beyond that every word that is such a
// name. What comes from elsewhere, and is not in Packages, is not found.
func CheckPrograms(root fs.FS, p Programs) ([]string, error) {
	m, err := readModule(root, p)
	if err != nil {
		return nil, err
	}
	makefile, err := fs.ReadFile(root, "Makefile")
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	targets := readMakefile(string(makefile))
	run := map[string]bool{}
	for name := range targets {
		if len(targets[name].recipe) == 0 && len(p.Starts[name]) == 0 {
			continue
		}
		m.target(name, targets, run)
	}
	for name := range m.scripts {
		if !run[name] && !slices.Contains(p.Entries, name) {
			m.found = append(m.found, name+":1: no target of the Makefile runs this: who sees to what it needs?")
		}
	}
	for name := range p.Starts {
		if _, ok := targets[name]; !ok {
			m.found = append(m.found, "Makefile:1: no target "+name)
		}
	}
	slices.Sort(m.found)
	m.found = slices.Compact(m.found)
	return m.found, nil
}

// commandWord is what the name of a program looks like.
var commandWord = regexp.MustCompile(`^[a-z][a-z0-9_.+-]*$`)

// module is what was found in one.
type module struct {
	Programs
	scripts   map[string]script   // by path
	functions map[string]bool     // of files that scripts read
	programs  map[string]bool     // the Go files of package main that are no tests
	started   map[string][]string // by path of a Go file or a script, the programs
	found     []string
}

func readModule(root fs.FS, p Programs) (*module, error) {
	m := &module{Programs: p, scripts: map[string]script{}, functions: map[string]bool{}, programs: map[string]bool{}, started: map[string][]string{}}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != ".ci" && passedOver(path.Base(name)):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > 1<<20 {
			return err // what was built here
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		first, _, _ := strings.Cut(string(source), "\n")
		switch {
		case path.Ext(name) == ".go":
			return m.goFile(name, source)
		case strings.HasPrefix(first, "#!") && strings.HasSuffix(first, "bash"):
			m.scripts[name] = readScript(string(source))
		case path.Ext(name) == ".sh":
			maps.Copy(m.functions, readScript(string(source)).functions)
		}
		return nil
	})
	for name, s := range m.scripts {
		m.shell(name, s)
	}
	return m, err
}

func (m *module) known(program string) bool {
	_, ok := m.Packages[program]
	_, optional := m.Optional[program]
	return ok || optional
}

func (m *module) start(name, program string) {
	if !m.known(program) {
		m.found = append(m.found, fmt.Sprintf("%s:1: starts %s: which Debian package has it?", name, program))
		return
	}
	m.started[name] = append(m.started[name], program)
}

// mention notes a word that may be one of the programs that are known.
func (m *module) mention(name, word string) {
	if m.known(word) {
		m.started[name] = append(m.started[name], word)
	}
}

// shell notes the programs of a script.
func (m *module) shell(name string, s script) {
	for _, c := range s.commands {
		if commandWord.MatchString(c) && !shellWords[c] && !s.functions[c] && !m.functions[c] {
			m.start(name, c)
		}
	}
	for _, w := range s.words {
		m.mention(name, w)
	}
	for _, text := range s.quoted { // for another shell, or in another language
		for _, c := range readScript(text).commands {
			m.mention(name, c)
		}
	}
}

// goFile notes the programs of a Go file.
func (m *module) goFile(name string, source []byte) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	test := strings.HasSuffix(name, "_test.go")
	m.programs[name] = f.Name.Name == "main" && !test
	m.started[name] = nil
	executes := slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"os/exec"` })
	var given []ast.Expr // to package os/exec
	var lists []*ast.RangeStmt
	constants := map[string]ast.Expr{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if i := programArgument(n.Fun); i >= 0 && i < len(n.Args) {
				given = append(given, n.Args[i])
			}
		case *ast.RangeStmt:
			lists = append(lists, n)
		case *ast.ValueSpec:
			for i, v := range n.Values {
				constants[n.Names[i].Name] = v
			}
		case *ast.BasicLit:
			if text, ok := literal(n); ok && (test && executes || m.programs[name]) {
				m.mention(name, text)
			}
		}
		return true
	})
	for _, e := range given {
		values := []ast.Expr{e}
		if id, ok := e.(*ast.Ident); ok {
			values = append(values, constants[id.Name])
			values = append(values, listed(id.Name, e.Pos(), lists)...)
		}
		for _, v := range values {
			if text, ok := literal(v); ok && !strings.Contains(text, "/") {
				m.start(name, text)
			}
		}
	}
	return nil
}

// programArgument is which argument of a function of os/exec names a program; -1: it is none.
func programArgument(function ast.Expr) int {
	s, ok := function.(*ast.SelectorExpr)
	if !ok {
		return -1
	}
	if x, ok := s.X.(*ast.Ident); !ok || x.Name != "exec" {
		return -1
	}
	return map[string]int{"Command": 0, "LookPath": 0, "CommandContext": 1}[s.Sel.Name]
}

// listed are the elements of the literal lists over which a loop around pos runs with that variable.
func listed(variable string, pos token.Pos, loops []*ast.RangeStmt) (elements []ast.Expr) {
	for _, l := range loops {
		v, ok := l.Value.(*ast.Ident)
		list, literal := l.X.(*ast.CompositeLit)
		if ok && literal && v.Name == variable && l.Pos() < pos && pos < l.End() {
			elements = append(elements, list.Elts...)
		}
	}
	return elements
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
