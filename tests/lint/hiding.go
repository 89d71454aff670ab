package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Hidden reports structs that hide members that they embed: a promoted field or method of
// an embedded type with the same name as a member of the struct itself, or as one promoted
// from a smaller depth. A reader of x.name then has to know which of the two it is. Each
// is a line "file:line: what", sorted. Types of other modules, _test.go files and files
// that Check skips are ignored. If a struct has its own methods in place of those of an
// interface that it embeds, that is delegation, and hides nothing.
func Hidden(root fs.FS, module string) ([]string, error) {
	m := declarations{module: module, files: token.NewFileSet(), types: map[typeName]*declared{}}
	err := eachFile(root, func(name string) error {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		f, err := parser.ParseFile(m.files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		m.file(path.Dir(name), f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []string
	for name, d := range m.types {
		if _, ok := d.is.(*ast.StructType); ok {
			found = append(found, m.hiddenIn(name, d)...)
		}
	}
	slices.Sort(found)
	return found, nil
}

// typeName is a type, identified by its package's directory and its name.
type typeName struct{ folder, name string }

// declared has the members of a type of the module. If it is declared several times, for
// several platforms, they are merged.
type declared struct {
	at      token.Pos
	is      ast.Expr
	imports map[string]string // imports of its file: directories of the module, by name
	fields  map[string]bool
	embeds  []ast.Expr
	methods map[string]bool
}

type declarations struct {
	module string
	files  *token.FileSet
	types  map[typeName]*declared
}

func (m *declarations) of(name typeName) *declared {
	if m.types[name] == nil {
		m.types[name] = &declared{fields: map[string]bool{}, methods: map[string]bool{}}
	}
	return m.types[name]
}

// file records the types and methods that a file declares.
func (m *declarations) file(folder string, f *ast.File) {
	imports := map[string]string{}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		within, ok := strings.CutPrefix(imported, m.module+"/")
		if err != nil || !ok {
			continue
		}
		name := path.Base(within)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = within
	}
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv != nil {
				if of := baseOf(decl.Recv.List[0].Type); of != nil {
					m.of(typeName{folder, of.Name}).methods[decl.Name.Name] = true
				}
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					m.of(typeName{folder, spec.Name.Name}).declare(spec, imports)
				}
			}
		}
	}
}

// baseOf returns the name of a type of this package without its pointer and its
// parameters; nil for any other.
func baseOf(t ast.Expr) *ast.Ident {
	switch t := t.(type) {
	case *ast.Ident:
		return t
	case *ast.StarExpr:
		return baseOf(t.X)
	case *ast.IndexExpr:
		return baseOf(t.X)
	case *ast.IndexListExpr:
		return baseOf(t.X)
	}
	return nil
}

func (d *declared) declare(spec *ast.TypeSpec, imports map[string]string) {
	d.at, d.is, d.imports = spec.Pos(), spec.Type, imports
	var members *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		return
	}
	for _, member := range members.List {
		for _, name := range member.Names {
			d.fields[name.Name] = true
		}
		if len(member.Names) == 0 {
			d.embeds = append(d.embeds, member.Type)
		}
	}
}

// find returns an embedded type's declaration in the module, and its name; nil for a type
// of another module.
func (m *declarations) find(folder string, imports map[string]string, t ast.Expr) (string, string, *declared) {
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
			continue
		case *ast.IndexExpr:
			t = of.X
			continue
		case *ast.IndexListExpr:
			t = of.X
			continue
		case *ast.Ident:
			return m.followed(folder, of.Name)
		case *ast.SelectorExpr:
			if pkg, ok := of.X.(*ast.Ident); ok && imports[pkg.Name] != "" {
				return m.followed(imports[pkg.Name], of.Sel.Name)
			}
			return "", of.Sel.Name, nil
		}
		return "", "", nil
	}
}

// followed resolves a type that is declared as another type.
func (m *declarations) followed(folder, name string) (string, string, *declared) {
	d := m.types[typeName{folder, name}]
	if d == nil {
		return folder, name, nil
	}
	switch d.is.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		if in, _, other := m.find(folder, d.imports, d.is); other != nil {
			if len(d.methods) == 0 {
				return in, name, other
			}
		}
	}
	return folder, name, d
}

// promotion is a type whose members are promoted to a struct from a given depth.
type promotion struct {
	folder string
	path   string
	of     *declared
}

// hiddenIn reports the embedded members that a struct hides.
func (m *declarations) hiddenIn(name typeName, d *declared) (found []string) {
	seen := map[string]string{} // by name, the type that it belongs to at the smallest depth
	for n := range d.names() {
		seen[n] = name.name
	}
	level := []promotion{{name.folder, name.name, d}}
	for depth := 0; len(level) > 0 && depth < 16; depth++ {
		var next []promotion
		here := map[string]string{}
		for _, p := range level {
			for _, t := range p.of.embeds {
				folder, base, of := m.find(p.folder, p.of.imports, t)
				if depth > 0 {
					here[base] = p.path
				} else {
					seen[base] = p.path
				}
				if of != nil {
					next = append(next, promotion{folder, p.path + "." + base, of})
				}
			}
		}
		for _, p := range next {
			_, isInterface := p.of.is.(*ast.InterfaceType)
			for _, n := range slices.Sorted(maps.Keys(p.of.names())) {
				owner, hides := seen[n]
				within := owner != name.name && strings.HasPrefix(p.path, owner+".") // and already reported for that struct
				if hides && n != "_" && !within && !(isInterface && d.methods[n]) {
					found = append(found, fmt.Sprintf("%s: %s hides %s, which it embeds: name the field",
						m.position(d.at), owner+"."+n, p.path+"."+n))
				}
				here[n] = p.path
			}
		}
		maps.Copy(here, seen)
		seen, level = here, next
	}
	return found
}

func (m *declarations) position(at token.Pos) string {
	p := m.files.Position(at)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// names returns the fields and methods that a type itself has.
func (d *declared) names() map[string]bool {
	all := maps.Clone(d.fields)
	maps.Copy(all, d.methods)
	return all
}
