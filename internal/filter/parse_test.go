package filter

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// files opens texts by name.
func files(texts map[string]string) func(string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) {
		text, ok := texts[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
}

// TestParse reads rules one after another; "exclude X" and the like stand for
// the options of that name, everything else for --filter.
func TestParse(t *testing.T) {
	texts := map[string]string{
		"list": "one\n# comment\n\n; another\r\n+ two\n- three\r!four\nlast", "clears": "a\n!\nb", "nul": "a\nb\x00\x00#x\x00c\x00",
		"rules": "+ a\n-! b\nH c\nmerge,- plain\n", "plain": "- x\n+ y\n#z\n", "side": "- a\n+! b",
	}
	for _, c := range []struct {
		name string
		in   []string
		want string // the rules, separated by "|"
		nul  bool
	}{
		{"options", []string{"exclude a", "include b", "exclude + c", "include - d", "include  e"}, "- a|+ b|+ c|- d|+  e", false},
		{"clearing", []string{"exclude a", "exclude !", "include !b", "clear", "- c", "!", "include d"}, "+ d", false},
		{"names", []string{"- a", "+ b", "exclude,s c", "include,!p_d", "H e", "show f", "protect g", "R h", "hide,p i", "-_j", "+  k ", "-, l"},
			"- a|+ b|-s c|+!p d|-s e|+s f|-r g|+r h|-sp i|- j|+  k |- l", false},
		{"modifiers", []string{"-/!srp a", "+sr b"}, "-/!srp a|+sr b", false},
		{"exclude from", []string{"exclude-from list"}, "- one|+ two|- three|- !four|- last", false},
		{"include from", []string{"include-from list"}, "+ one|+ two|- three|+ !four|+ last", false},
		{"a file that clears", []string{"exclude x", "exclude-from clears"}, "- b", false},
		{"NULs", []string{"exclude-from nul"}, "- a\nb|- c", true},
		{"merge of rules", []string{"merge rules"}, "+ a|-! b|-s c|- - x|- + y", false},
		{"merge of patterns", []string{".+/s plain"}, "+/s - x|+/s + y", false},
		{"merge that is left out", []string{".ep- plain"}, "- plain|-p - x|-p + y", false},
		{"merge for a side", []string{".r side"}, "-r a|+!r b", false},
	} {
		p := Parser{Open: files(texts), Nul: c.nul}
		var err error
		for _, in := range c.in {
			option, value, _ := strings.Cut(in, " ")
			switch take := map[string]func(string) error{
				"exclude": p.Exclude, "include": p.Include, "exclude-from": p.ExcludeFrom, "include-from": p.IncludeFrom,
			}[option]; {
			case take != nil && err == nil:
				err = take(value)
			case err == nil:
				err = p.Filter(in)
			}
		}
		var got []string
		for _, r := range p.Rules() {
			got = append(got, r.String())
		}
		if err != nil || strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	texts := map[string]string{"self": ". self", "sided": "-s a", "long": strings.Repeat("x", MaxPatternBytes+maxPrefixBytes+1), "side": "- a"}
	for _, rule := range []string{
		"x", "excluded a", "- ", "-", "-foo", "-C", "-w a", "-x a", "-- a", "-e a", "-n a", "Hs a", "P,r a", ".! f", ".C", ".-+ f", "!a", "clear a", ": f",
		"dir-merge .rules", ".e,p side", ". self", ".s sided", "- a\x00b", "- " + strings.Repeat("x", MaxPatternBytes+1), "merge", "exclude\ta",
	} {
		p := Parser{Open: files(texts)}
		if err := p.Filter(rule); !errors.Is(err, ErrSyntax) {
			t.Errorf("%.20q: %v, rules %v", rule, err, p.Rules())
		}
	}
	p := Parser{Open: files(texts)}
	if err := p.Filter(". nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := p.ExcludeFrom("long"); err == nil {
		t.Error("a line of any length is taken")
	}
	p = Parser{}
	for range MaxRules {
		if err := p.Exclude("a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Exclude("a"); !errors.Is(err, ErrSyntax) {
		t.Errorf("more than %d rules: %v", MaxRules, err)
	}
	long := Rule{Pattern: strings.Repeat("x", MaxPatternBytes)}
	if _, err := Compile(slices.Repeat([]Rule{long}, MaxBytes/MaxPatternBytes+1)); !errors.Is(err, ErrSyntax) {
		t.Errorf("patterns of more than %d bytes: %v", MaxBytes, err)
	}
}

func TestSenderOnly(t *testing.T) {
	got := SenderOnly([]Rule{{Pattern: "a"}, {Pattern: "b", Receiver: true}, {Pattern: "c", Sender: true}, {Pattern: "d", Sender: true, Receiver: true}})
	for i, want := range []string{"-s a", "-r b", "-s c", "-sr d"} {
		if got[i].String() != want {
			t.Errorf("%s, want %s", &got[i], want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("- a*[b]", false)
	f.Add("merge,-s file", true)
	f.Add("H,p a/***", false)
	f.Fuzz(func(t *testing.T, text string, nul bool) {
		open := files(map[string]string{"file": text})
		p := Parser{Open: open, Nul: nul}
		_ = p.Filter(text)
		_ = p.ExcludeFrom("file")
		rules := p.Rules()
		again := Parser{}
		for i := range rules {
			if err := again.Filter(rules[i].String()); err != nil {
				t.Fatalf("%+v does not parse again: %v", rules[i], err)
			}
		}
		if !slices.Equal(again.Rules(), rules) {
			t.Fatalf("%+v became %+v", rules, again.Rules())
		}
		if _, err := Compile(rules); err != nil {
			t.Fatal(err)
		}
	})
}
