package pattern

import "testing"

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"[!t]*", "train", false},
		{"[!t]*", "a", true},
		{"[^t]*", "train", false},
		{"[^t]*", "a", true},
		{"d/[!a-c]/[!x]", "d/d/y", true},
		{"d/[!a-c]/[!x]", "d/b/y", false},
		{"d/[!a-c]/[!x]", "d/d/x", false},
		{"[!.]*", ".hidden", false}, // the pattern must contain the dot
		{"[!a]*", ".hidden", false},
		{".[!a]*", ".hidden", true},
		{`\[!t]`, "[!t]", true},
		{`\[!t]`, "a", false},
		{"[a!]", "!", true},
		{"[[!t]", "!", true}, // the second [ is a member
		{"[[!t]", "a", false},
		{"[]a]", "]", true},
		{"[]a]", "a", true},
		{"[!]a]", "]", false},
		{"[!]a]", "b", true},
		{`[\]!]`, "!", true},
		{"[!]", "!", false}, // it is not terminated
		{"[", "[", true},    // taken literally
		{"[!", "a", false},
		{"*", "..", false},
	} {
		if got := Matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %t, want %t", c.pattern, c.name, got, c.want)
		}
	}
}

// Converting a converted pattern changes nothing.
func FuzzForMatch(f *testing.F) {
	for _, seed := range []string{"[!a]*", "[]a]", `\[!a]`, "[!]a]/[^b]", "[", `a\`, "[[!t]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		once := ForMatch(pattern)
		if again := ForMatch(once); again != once {
			t.Fatalf("%q became %q, and that %q", pattern, once, again)
		}
	})
}
