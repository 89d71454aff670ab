package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Figures measure the size of a module's packages and types, their interdependence, and
// the plainness of its English.
type Figures struct {
	ProductLines, TestLines          int
	MostFiles, MostLines             counted  // production files of a package
	LargestComponent                 counted  // files of a package that depend on each other
	LargeTypes                       []string // types with methods
	FlagTests, ImportsOfWire, Sleeps []string // by location
	WhereRate, TellRate              float64  // in 10,000 words of comments and papers
	DesignWords, ChangelogLines      int

	words, where, tell int
	filesOf, linesOf   map[string]int // keyed by directory
	root               string
	files              *token.FileSet
}

// counted is a maximum, and its location.
type counted struct {
	n  int
	in string
}

func (c *counted) atLeast(n int, in string) {
	if n > c.n {
		*c = counted{n, in}
	}
}

// rate returns how often a word occurs in 10,000 words of comments and papers.
func (f *Figures) rate(n int) float64 { return float64(n) * 1e4 / float64(max(f.words, 1)) }

// The maximum numbers of fields and methods of a type with methods.
const mostFields, mostMethods = 20, 40

// Measure computes the figures of the module with the given root. It makes the go command
// compile what the module imports.
func Measure(root string) (*Figures, error) {
	f := &Figures{root: root, files: token.NewFileSet(), filesOf: map[string]int{}, linesOf: map[string]int{}}
	err := eachFile(os.DirFS(root), func(name string) error {
		ext := filepath.Ext(name)
		if ext != ".go" && ext != ".md" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if ext == ".go" {
			return f.goFile(name, text)
		}
		f.paper(name, string(text))
		return nil
	})
	if err != nil {
		return nil, err
	}
	for folder, n := range f.filesOf {
		f.MostFiles.atLeast(n, folder)
		f.MostLines.atLeast(f.linesOf[folder], folder)
	}
	f.WhereRate, f.TellRate = f.rate(f.where), f.rate(f.tell)
	return f, f.packages()
}

// isTest reports whether a Go file is not part of the product: a test, or a helper of
// tests.
func isTest(name string) bool {
	folder := filepath.Dir(name)
	return strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "tests/") || strings.HasSuffix(folder, "test")
}

var (
	aWord = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	where = regexp.MustCompile(`(?i)\bwhere\b`)
	tell  = regexp.MustCompile(`(?i)\b(tells?|told|untold|telling)\b`)
)

func (f *Figures) prose(text string) int {
	n := len(aWord.FindAllString(text, -1))
	f.words += n
	f.where += len(where.FindAllString(text, -1))
	f.tell += len(tell.FindAllString(text, -1))
	return n
}

func (f *Figures) paper(name, text string) {
	n := f.prose(strings.Join(prose(text), "\n"))
	if strings.HasPrefix(name, "docs/design/") {
		f.DesignWords += n
	}
	if name == "CHANGELOG.md" {
		_, unreleased, _ := strings.Cut(text, "\n## ")
		unreleased, _, _ = strings.Cut(unreleased, "\n## ")
		f.ChangelogLines = strings.Count(unreleased, "\n")
	}
}

func (f *Figures) goFile(name string, text []byte) error {
	file, err := parser.ParseFile(f.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, c := range file.Comments {
		f.prose(c.Text())
	}
	lines, folder := bytes.Count(text, []byte("\n")), filepath.Dir(name)
	if isTest(name) {
		f.TestLines += lines
		f.sleeps(file)
		return nil
	}
	f.ProductLines += lines
	f.filesOf[folder]++
	f.linesOf[folder] += lines
	switch folder {
	case "xfer/internal/wire":
		for _, spec := range file.Imports {
			if p := strings.Trim(spec.Path.Value, `"`); p == "gdrcp/chunker" || p == "gdrcp/gpu" {
				f.ImportsOfWire = append(f.ImportsOfWire, f.place(spec.Pos())+" "+p)
			}
		}
	case "chunker/dest":
	default:
		f.flagTests(file)
	}
	return nil
}

func (f *Figures) place(pos token.Pos) string {
	p := f.files.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// flagTests finds tests of a hello's flags: terms.Has(wire.FlagX), and flags&wire.FlagX.
func (f *Figures) flagTests(file *ast.File) {
	isFlag := func(e ast.Expr) (found bool) {
		ast.Inspect(e, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			found = found || ok && isIdent(s.X, "wire") && strings.HasPrefix(s.Sel.Name, "Flag")
			return !found
		})
		return found
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Has") && len(n.Args) == 1 && isFlag(n.Args[0]) {
				f.FlagTests = append(f.FlagTests, f.place(n.Pos()))
			}
		case *ast.BinaryExpr:
			if n.Op == token.AND && isFlag(n.Y) {
				f.FlagTests = append(f.FlagTests, f.place(n.Pos()))
			}
		}
		return true
	})
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// sleeps finds calls of time.Sleep that are neither in a loop nor in a synctest bubble,
// which makes them instant.
func (f *Figures) sleeps(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return false
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if ok && isIdent(s.X, "synctest") {
				return false
			}
			if ok && isIdent(s.X, "time") && s.Sel.Name == "Sleep" {
				f.Sleeps = append(f.Sleeps, f.place(n.Pos()))
			}
		}
		return true
	})
}

// goPackage is the go command's description of a package.
type goPackage struct {
	ImportPath, Dir, Export string
	CompiledGoFiles         []string // files that use cgo as cgo has translated them
	Module                  *struct{ Main bool }
}

// packages type-checks the module's packages.
func (f *Figures) packages() error {
	list := exec.Command("go", "list", "-export", "-compiled", "-deps", "-json=ImportPath,Dir,Export,CompiledGoFiles,Module", "./...")
	list.Dir = f.root
	var complaint strings.Builder
	list.Stderr = &complaint
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, complaint.String())
	}
	exported := map[string]string{} // files, by import path
	var own []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		exported[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main {
			own = append(own, p)
		}
	}
	imports := importer.ForCompiler(f.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) })
	for _, p := range own {
		folder, err := filepath.Rel(f.root, p.Dir)
		if err != nil || isTest(filepath.Join(folder, "x.go")) {
			continue
		}
		if err := f.typed(p, folder, imports); err != nil {
			return fmt.Errorf("check %s: %w", folder, err)
		}
	}
	return nil
}

// typed type-checks one package, and counts what needs types.
func (f *Figures) typed(p goPackage, folder string, imports types.Importer) error {
	var parsed []*ast.File
	for _, name := range p.CompiledGoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		file, err := parser.ParseFile(f.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports}).Check(p.ImportPath, f.files, parsed, &info)
	if err != nil {
		return err
	}
	leadsTo := map[string]map[string]bool{}
	for id, of := range info.Uses {
		if of.Pkg() != pkg || !isShared(of, pkg) {
			continue
		}
		from, to := f.files.Position(id.Pos()).Filename, f.files.Position(of.Pos()).Filename
		if leadsTo[from] == nil {
			leadsTo[from] = map[string]bool{}
		}
		leadsTo[from][to] = true
	}
	f.LargestComponent.atLeast(largestComponent(leadsTo), folder)
	for _, name := range pkg.Scope().Names() {
		of, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || of.IsAlias() {
			continue
		}
		named, _ := of.Type().(*types.Named)
		if named == nil || named.NumMethods() == 0 {
			continue
		}
		fields := 0
		if s, ok := named.Underlying().(*types.Struct); ok {
			fields = s.NumFields()
		}
		if fields > mostFields || named.NumMethods() > mostMethods {
			f.LargeTypes = append(f.LargeTypes, fmt.Sprintf("%s.%s: %d fields, %d methods", folder, name, fields, named.NumMethods()))
		}
	}
	return nil
}

// isShared reports whether an object belongs to its package, and not to a function: a
// package-level name, a field or a method.
func isShared(of types.Object, pkg *types.Package) bool {
	if v, ok := of.(*types.Var); ok && v.IsField() {
		return true
	}
	f, ok := of.(*types.Func)
	return ok && f.Signature().Recv() != nil || of.Parent() == pkg.Scope()
}

// largestComponent returns the size of the largest strongly connected component (Tarjan's
// algorithm).
func largestComponent(leadsTo map[string]map[string]bool) (largest int) {
	index, low, onStack := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, onStack[v] = append(stack, v), true
		for w := range leadsTo[v] {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if onStack[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		for n := 1; ; n++ {
			w := stack[len(stack)-1]
			stack, onStack[w] = stack[:len(stack)-1], false
			largest = max(largest, n)
			if w == v {
				return
			}
		}
	}
	for v := range leadsTo {
		if index[v] == 0 {
			visit(v)
		}
	}
	return largest
}
