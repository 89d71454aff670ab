package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Programs are the programs that a module's tests may start, and the targets of its
// Makefile that run them.
type Programs struct {
	// Packages has the Debian package of each program, "" for a minimal Debian with git,
	// make, gcc and Go.
	Packages map[string]string
	// Optional are programs without which a test is less thorough, and the reason.
	Optional map[string]string
	// Starts lists for a target the directories, including those below, whose tests or
	// program it runs.
	Starts map[string][]string
	// Skips lists for a target the test files in those directories that start nothing in
	// its runs.
	Skips map[string][]string
}

// CheckPrograms reports, as Check does, programs that tests start but Programs does not
// list, and for each target those that it does not install: by a line with .ci/need in the
// output of `make -n`, or in a script that this runs.
//
// A program is a literal that is passed to os/exec, or any other literal in such a test
// that is in Packages.
func CheckPrograms(root fs.FS, p Programs) (found []string, err error) {
	started, isMain := map[string][]string{}, map[string]bool{} // by file
	err = eachFile(root, func(name string) error {
		if path.Ext(name) != ".go" || !isTest(name) {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		if err == nil {
			isTest := strings.HasSuffix(name, "_test.go")
			isMain[name] = f.Name.Name == "main" && !isTest
			started[name] = p.startedBy(f, isTest || isMain[name])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	makefile, err := fs.ReadFile(root, "Makefile")
	if err != nil {
		return nil, err
	}
	for target, folders := range p.Starts {
		dry := exec.Command("make", "-n", "-f", "-", target)
		dry.Stdin = strings.NewReader(string(makefile))
		dry.Env = append(dry.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		recipe, err := dry.Output()
		if err != nil {
			return nil, fmt.Errorf("make -n %s: %w", target, err)
		}
		installed := map[string]bool{"": true}
		installs(root, ".", string(recipe), installed, map[string]bool{})
		for file, programs := range started {
			ofTarget := func(folder string) bool {
				return folder == path.Dir(file) || !isMain[file] && (folder == "." || strings.HasPrefix(file, folder+"/"))
			}
			if slices.Contains(p.Skips[target], file) || !slices.ContainsFunc(folders, ofTarget) {
				continue
			}
			for _, program := range programs {
				pkg, known := p.Packages[program]
				if !known {
					found = append(found, fmt.Sprintf("%s:1: starts %s: which Debian package has it?", file, program))
				} else if !installed[pkg] {
					found = append(found, fmt.Sprintf("%s:1: starts %s, but make %s does not install %s: add it to a .ci/need line", file, program, target, pkg))
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// startedBy returns the programs that a file starts, without optional ones.
func (p Programs) startedBy(f *ast.File, isTest bool) (programs []string) {
	executes := f.Name.Name == "main" || slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"os/exec"` })
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit: // it may be passed to a function that starts it
			if _, known := p.Packages[literal(n)]; known && executes && isTest {
				programs = append(programs, literal(n))
			}
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || !isIdent(s.X, "exec") || len(n.Args) == 0 {
				return true
			}
			program := literal(n.Args[0])
			if s.Sel.Name == "CommandContext" && len(n.Args) > 1 {
				program = literal(n.Args[1])
			}
			if program != "" && !strings.Contains(program, "/") && p.Optional[program] == "" {
				programs = append(programs, program)
			}
		}
		return true
	})
	return programs
}

// literal returns the value of a string literal, or "".
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value) // it was parsed
	return text
}

var (
	needLine   = regexp.MustCompile(`(?m)^[^#\n]*\.ci/need"? ([a-z0-9:.+ -]+)`)
	scriptPath = regexp.MustCompile(`(\$here/)?[a-z.][a-zA-Z0-9_./-]*`)
)

// installs records what a shell text installs, and the scripts below root that it names.
func installs(root fs.FS, folder, text string, installed, seen map[string]bool) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for _, m := range needLine.FindAllStringSubmatch(text, -1) {
		for word := range strings.FieldsSeq(m[1]) {
			installed[word[strings.Index(word, ":")+1:]] = true
		}
	}
	for _, word := range scriptPath.FindAllString(text, -1) {
		name := path.Clean(word)
		if rest, ok := strings.CutPrefix(word, "$here/"); ok {
			name = path.Join(folder, rest)
		}
		if script, err := fs.ReadFile(root, name); err == nil && strings.HasPrefix(string(script), "#!") && !seen[name] {
			seen[name] = true
			installs(root, path.Dir(name), string(script), installed, seen)
		}
	}
}
