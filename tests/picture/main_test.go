package main

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestScreen(t *testing.T) {
	s := newScreen(10, 3)
	for _, text := range []string{"one\r\n", " 10%  fast", "\r 20%", "\r          \rdone é\r\n", "0123456789ab\r\n", "last"} {
		s.write(text)
		s.frame(time.Second)
	}
	for i, want := range []string{"one|", "one| 10%  fast", "one| 20%  fast", "one|done é|", "0123456789|ab|", "0123456789|ab|last"} {
		if got := strings.Join(s.frames[i].lines, "|"); got != want {
			t.Errorf("frame %d is %q, want %q", i, got, want)
		}
	}
	s.frame(time.Second)
	if len(s.frames) != 6 || s.frames[5].shown != 2*time.Second {
		t.Errorf("%d frames, the last shown for %v", len(s.frames), s.frames[len(s.frames)-1].shown)
	}
}

// Each line is drawn once for the whole time that it is in a row.
func TestSpans(t *testing.T) {
	s := newScreen(20, 2)
	for _, text := range []string{"a", "\r\nb", "\rc", "\r\nd"} {
		s.write(text)
		s.frame(time.Second)
	}
	want := []span{{0, "a", 0, 3 * time.Second}, {1, "b", time.Second, 2 * time.Second}, {1, "c", 2 * time.Second, 3 * time.Second},
		{0, "c", 3 * time.Second, 4 * time.Second}, {1, "d", 3 * time.Second, 4 * time.Second}}
	got := s.spans()
	if len(got) != len(want) {
		t.Fatalf("spans %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestSVG(t *testing.T) {
	s := newScreen(20, 2)
	s.write("a <b> & \"c\"")
	s.frame(time.Second)
	s.write("\r\nd")
	s.frame(3 * time.Second)
	picture, err := s.svg()
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, picture)
	for _, want := range []string{">a &lt;b&gt; &amp; &#34;c&#34;</text>", ">d</text>", "animation:8.00s", "@keyframes k1{0%{opacity:0}12.5%{opacity:1}100%{opacity:0}}"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("the picture lacks %q:\n%s", want, picture)
		}
	}
	s.write("\x1b[2J")
	if _, err := s.svg(); err == nil {
		t.Error("a picture of an escape sequence that the screen does not know")
	}
	if _, err := newScreen(1, 1).svg(); err == nil {
		t.Error("a picture of nothing")
	}
	long := newScreen(100, 2)
	for i := range 2000 {
		long.write("\r" + strings.Repeat(string(rune('a'+i%26)), 90))
		long.frame(time.Second)
	}
	if _, err := long.svg(); err == nil {
		t.Error("a picture of any size")
	}
}

func wellFormed(t *testing.T, picture []byte) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// What a command shows on its terminal is in the frames, with its time.
func TestRecord(t *testing.T) {
	s := newScreen(40, 4)
	if err := s.record(t.Context(), t.TempDir(), `printf one; sleep 0.3; printf '\rtwo\n'; test -t 2 && echo tty; pwd >/dev/null`); err != nil {
		t.Fatal(err)
	}
	last := s.frames[len(s.frames)-1]
	if got := strings.Join(last.lines, "|"); got != "two|tty|" {
		t.Errorf("the last frame is %q", got)
	}
	for _, f := range s.frames {
		if strings.Join(f.lines, "|") == "one" && f.shown < 200*time.Millisecond {
			t.Errorf("%v was shown for %v", f.lines, f.shown)
		}
	}
	if err := s.record(t.Context(), t.TempDir(), "exit 3"); err == nil {
		t.Error("a command that fails is recorded")
	}
}

// The committed picture is one that this program writes, and the README shows the
// last line of its copy.
func TestPictureInTheReadme(t *testing.T) {
	picture, err := os.ReadFile("../../docs/picture/copy.svg")
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, picture)
	if len(picture) > maxPictureBytes {
		t.Errorf("the picture has %d bytes", len(picture))
	}
	for _, line := range commands {
		if !strings.Contains(string(picture), ">$ "+html.EscapeString(line)+"</text>") {
			t.Errorf("the picture does not show %q: run make picture", line)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^copied .*, verified$`).FindString(string(readme))
	if shown == "" || !strings.Contains(string(picture), ">"+shown+"</text>") {
		t.Errorf("the README shows %q, which the picture does not", shown)
	}
}
