package remote

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestBanner(t *testing.T) {
	var b bytes.Buffer
	want := Banner{Protocol: 7, SetUp: setUpVersion, Version: "v1.2, version 3"}
	if err := WriteBanner(&b, want); err != nil {
		t.Fatal(err)
	}
	b.WriteString("what follows")
	r := bufio.NewReaderSize(&b, maxLineBytes)
	got, err := readBanner(r)
	if err != nil || got != want {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if rest, _ := r.ReadString(0); rest != "what follows" {
		t.Errorf("%q is left", rest)
	}
}

func TestNoBanner(t *testing.T) {
	good := bannerMagic + "1, version x\n"
	for _, c := range []struct {
		name, said, noise string
		silent            bool
	}{
		{"nothing", "", "", true},
		{"a word of a script", "gdrcp-bootstrap: Linux x\n", "", true},
		{"half a banner", good[:20], "", true},
		{"a line before", "Welcome!\n" + good, "Welcome!", false},
		{"letters before", "Welcome!" + good, "Welcome!", false},
		{"empty lines before", "\r\n\n" + good, "", false},
		{"an empty line and words", "\nhello\x1b[31m\n" + good, "hello[31m", false},
		{"without end", strings.Repeat("y\n", 1<<20), "y", false},
		{"one line without end", strings.Repeat("y", 4<<20), strings.Repeat("y", maxVersionBytes), false},
	} {
		_, err := readBanner(bufio.NewReaderSize(strings.NewReader(c.said), maxLineBytes))
		var silent *noBannerError
		var noise *NoiseError
		switch {
		case errors.As(err, &silent) != c.silent:
			t.Errorf("%s: %v", c.name, err)
		case !c.silent && !errors.As(err, &noise):
			t.Errorf("%s: %v", c.name, err)
		case !c.silent && noise.Line != c.noise:
			t.Errorf("%s: noise %q, want %q", c.name, noise.Line, c.noise)
		}
	}
	for _, bad := range []string{"x, version 1", "70000, version x", "-1, version x", "1"} {
		if b, err := readBanner(bufio.NewReader(strings.NewReader(bannerMagic + bad + "\n"))); err == nil {
			t.Errorf("%q is taken as %+v", bad, b)
		}
	}
}

func FuzzBanner(f *testing.F) {
	f.Add(bannerMagic + "2, version 1.0\nrest")
	f.Add("noise\n" + bannerMagic + "2, version 1.0\n")
	f.Fuzz(func(t *testing.T, said string) {
		b, err := readBanner(bufio.NewReaderSize(strings.NewReader(said), maxLineBytes))
		if err != nil {
			return
		}
		if b.Protocol < 0 || b.Protocol > 1<<16 || len(b.Version) > maxVersionBytes || strings.ContainsAny(b.Version, "\x1b\n\r") {
			t.Fatalf("%q gives %+v", said, b)
		}
	})
}
