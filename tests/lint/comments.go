package lint

import (
	"go/ast"
	"go/token"
	"strings"
	"unicode"
	"unicode/utf8"
)

// comments reports doc comments that begin with a name other than that of the declaration,
// as they do if only the declaration was renamed. Such a comment begins with a lower-case
// word, or with the name in other letters.
func (c *checker) comments(files *token.FileSet, name string, f *ast.File) {
	check := func(declared *ast.Ident, doc *ast.CommentGroup) {
		if said := firstWord(doc); said != declared.Name && isName(said, declared.Name) {
			c.report(name, files.Position(doc.Pos()).Line, "the comment of %s begins with %q", declared.Name, said)
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			check(d.Name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					check(s.Name, docOf(d, s.Doc))
				case *ast.ValueSpec:
					if len(s.Names) == 1 {
						check(s.Names[0], docOf(d, s.Doc))
					}
				}
			}
		}
	}
}

// docOf returns the comment of one of d's declarations: that of d itself if it is the only
// one.
func docOf(d *ast.GenDecl, own *ast.CommentGroup) *ast.CommentGroup {
	if own == nil && !d.Lparen.IsValid() {
		return d.Doc
	}
	return own
}

// firstWord returns the first word of a comment without trailing punctuation, or "".
func firstWord(doc *ast.CommentGroup) string {
	words := strings.Fields(doc.Text())
	if len(words) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimRight(words[0], ",:;."), "'s")
}

// isName reports whether the first word of a sentence can only be a name.
func isName(word, declared string) bool {
	first, _ := utf8.DecodeRuneInString(word)
	return unicode.IsLower(first) || strings.EqualFold(word, declared)
}
