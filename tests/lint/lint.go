// Package lint holds the sources to the project's own rules, which no general
// checker knows: which package may import which, where cgo and unsafe may
// live, how long a file may grow, that every package says what it is for, that a
// comment names what it stands above, and that no name of a struct hides one that
// it embeds.
package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Rules are what a module is held to. Folders are relative to the module's
// root, "." being the root itself.
type Rules struct {
	// Module is the module's path, as in go.mod.
	Module string
	// Imports names, for each folder, the folders of the module that its
	// package may import. A folder without an entry has that of the nearest
	// folder above it. A package that no entry covers is reported.
	Imports map[string][]string
	// TestImports is what _test.go files may import beyond that.
	TestImports map[string][]string
	// Only names, for an import path or a prefix of one that ends before a
	// slash, the folders whose packages alone may import it, in test files
	// too. "C" and "unsafe" are import paths.
	Only map[string][]string
	// BannedNames are package names that say nothing.
	BannedNames []string
	// MaxLines is how long a file that is not generated may be.
	MaxLines int
}

// Check reports where the Go files under root break rules, one line each as
// "file:line: what", sorted. It passes over the folders that the go command
// passes over: testdata, vendor, and names with a leading dot or underscore.
// The error is that of reading or parsing a file.
func Check(root fs.FS, rules Rules) ([]string, error) {
	c := checker{rules: rules, documented: map[string]bool{}, first: map[string]string{}}
	err := eachFile(root, func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		return c.file(name, source)
	})
	if err != nil {
		return nil, err
	}
	for folder, name := range c.first {
		if !c.documented[folder] {
			c.report(name, 1, "package has no doc comment in any of its files")
		}
	}
	slices.Sort(c.found)
	return c.found, nil
}

// eachFile hands every file under root to take, but for those in folders that are passed over. It ends with the first error.
func eachFile(root fs.FS, take func(name string) error) error {
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return take(name)
		case passedOver(path.Base(name)) && name != ".":
			return fs.SkipDir
		}
		return nil
	})
}

func passedOver(folder string) bool {
	return folder == "testdata" || folder == "vendor" || strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_")
}

type checker struct {
	rules      Rules
	found      []string
	documented map[string]bool   // by folder
	first      map[string]string // by folder, the first file that is not a test
}

func (c *checker) report(name string, line int, format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf("%s:%d: %s", name, line, fmt.Sprintf(format, args...)))
}

func (c *checker) file(name string, source []byte) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	folder, test := path.Dir(name), strings.HasSuffix(name, "_test.go")
	if lines := bytes.Count(source, []byte("\n")); lines > c.rules.MaxLines && !ast.IsGenerated(f) {
		c.report(name, lines, "%d lines, more than %d: divide it", lines, c.rules.MaxLines)
	}
	if slices.Contains(c.rules.BannedNames, f.Name.Name) {
		c.report(name, files.Position(f.Name.Pos()).Line, "package %s: the name says nothing about what it does", f.Name.Name)
	}
	if !test {
		c.comments(files, name, f)
		if c.first[folder] == "" {
			c.first[folder] = name
		}
		c.documented[folder] = c.documented[folder] || f.Doc != nil
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("parse %s: import %s: %w", name, spec.Path.Value, err)
		}
		if why := c.refuses(folder, imported, test); why != "" {
			c.report(name, files.Position(spec.Pos()).Line, "import %q: %s", imported, why)
		}
	}
	return nil
}

// refuses says why a file in folder may not import what it does, or "".
func (c *checker) refuses(folder, imported string, test bool) string {
	for prefix, folders := range c.rules.Only {
		if (imported == prefix || strings.HasPrefix(imported, prefix+"/")) && !slices.Contains(folders, folder) {
			return "only in " + strings.Join(folders, ", ")
		}
	}
	within, ok := strings.CutPrefix(imported, c.rules.Module+"/")
	if !ok || within == folder {
		return ""
	}
	allowed, ruled := nearest(c.rules.Imports, folder)
	if !ruled {
		return "no rule says what this package may import: add one"
	}
	if test {
		more, _ := nearest(c.rules.TestImports, folder)
		allowed = append(slices.Clone(allowed), more...)
	}
	if slices.Contains(allowed, within) {
		return ""
	}
	return fmt.Sprintf("%s may import only [%s] of this module", folder, strings.Join(allowed, " "))
}

// nearest finds the entry of folder or of the nearest one above it. The root's
// entry is for the root alone.
func nearest(entries map[string][]string, folder string) ([]string, bool) {
	for {
		if entry, ok := entries[folder]; ok {
			return entry, true
		}
		if folder = path.Dir(folder); folder == "." {
			return nil, false
		}
	}
}
