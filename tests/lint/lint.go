// Package lint checks the sources against the project's own rules, for which there is no
// general checker: which package may import which, which packages may use cgo and unsafe,
// how long a file may be, that every package has a doc comment, that a doc comment begins
// with the declared name, and that no member of a struct hides an embedded one.
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

// Rules are the rules for a module. Directories are relative to the module's root, "."
// being the root itself.
type Rules struct {
	// Module is the module's path, as in go.mod.
	Module string
	// Imports lists, for each directory, the directories of the module that its package
	// may import. A directory without an entry has that of its nearest parent with one. A
	// package without an entry is reported.
	Imports map[string][]string
	// TestImports lists what _test.go files may import in addition.
	TestImports map[string][]string
	// Only lists, for an import path or a prefix of one that ends before a slash, the only
	// directories whose packages may import it, including their tests. "C" and "unsafe"
	// are import paths.
	Only map[string][]string
	// BannedNames are meaningless package names.
	BannedNames []string
	// MaxLines is the maximum length of a file that is not generated.
	MaxLines int
}

// Check reports violations of the rules in the Go files under root, one line each as
// "file:line: what", sorted. It skips the directories that the go command skips: testdata,
// vendor, and names with a leading dot or underscore. The error is that of reading or
// parsing a file.
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

// eachFile calls take for every file under root, except in skipped directories. It stops
// at the first error.
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
	documented map[string]bool   // by directory
	first      map[string]string // by directory, the first file that is not a test
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

// refuses returns the reason why a file in folder may not import a package, or "".
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

// nearest returns the entry of folder or of its nearest parent with one. The root's entry
// applies only to the root.
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
