package args

import "testing"

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a/b:c": "a/b:c", "": `""`, "a b": `"a b"`, "a\nb": `"a\nb"`, `a"b`: `"a\"b"`, "a\xff": `"a\xff"`} {
		if got := Quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
