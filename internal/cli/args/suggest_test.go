package args

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ba", 1}, {"root", "rot", 1}, {"qps", "gpu", 2}, {"abcd", "acbd", 1}, {"kitten", "sitting", 3}} {
		if d, back := distance(c.a, c.b), distance(c.b, c.a); d != c.want || back != c.want {
			t.Errorf("from %q to %q: %d and %d, want %d", c.a, c.b, d, back, c.want)
		}
	}
}
