package lint

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The README must be short for newcomers, and CONTRIBUTING fits on one page.
var projectPapers = PaperRules{MaxLines: map[string]int{"README.md": 200, "CONTRIBUTING.md": 150}}

func TestPapersLeadSomewhere(t *testing.T) {
	found, err := CheckPapers(os.DirFS("../.."), projectPapers)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

func TestCheckPapers(t *testing.T) {
	root := fstest.MapFS{
		"README.md": {Data: []byte("# One `two`, three\n\n[a](docs/a.md#far--end) [b](docs/b.md) [c](#one-two-three) [d](#four) [e](https://example.org/x.md)\n" +
			"```\n[f](nowhere.md)\n# no heading\n```\n![p](docs/p.svg) [g](docs/a.md#near-1) [h](docs/a.md#near-2) [i](#no-heading)\n")},
		"docs/a.md": {Data: []byte("## Far & end\n## Near\n### Near\n[up](../README.md) [down](README.md)\n" +
			"`x/here.go` `x/gone.go` `here.go` `gone.go` `x/h*.go` `x/g*.go` gone.go\n")},
		"docs/p.svg":       {Data: []byte("<svg/>")},
		"x/here.go":        {Data: []byte("package x")},
		"testdata/away.md": {Data: []byte("[x](nowhere.md)")},
		".git/away.md":     {Data: []byte("[x](nowhere.md)")},
	}
	found, err := CheckPapers(root, PaperRules{MaxLines: map[string]int{"README.md": 7, "docs/a.md": 5, "c.md": 1}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"README.md:3: a link leads to README.md#four, and no heading there has that name",
		"README.md:3: a link leads to docs/b.md, which is not there",
		"README.md:8: 8 lines, more than 7",
		"README.md:8: a link leads to README.md#no-heading, and no heading there has that name",
		"README.md:8: a link leads to docs/a.md#near-2, and no heading there has that name",
		"c.md:1: is not there",
		"docs/a.md:4: a link leads to docs/README.md, which is not there",
		"docs/a.md:5: it names gone.go, which is not there",
		"docs/a.md:5: it names x/g*.go, which is not there",
		"docs/a.md:5: it names x/gone.go, which is not there",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found:\n%s\nwant:\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}
