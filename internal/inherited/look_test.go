package inherited

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// look makes the test binary print the state of its descriptors to the file that
// it names.
const look = "INHERITED_TEST_LOOK"

func TestMain(m *testing.M) {
	if file := os.Getenv(look); file != "" {
		text := fmt.Sprint(Look(0), Look(1), Look(2))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A closed descriptor is distinguished from an inherited /dev/null, however that was
// opened; without C code, only from one that is open for either reading or writing.
func TestLook(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, certain := lookedAtStart(0)
	null := Given
	closed := Missing
	if !certain {
		null, closed = Unsure, Unsure
	}
	for _, c := range []struct {
		redirect string
		want     [3]State
	}{
		{"</dev/zero >/dev/zero 2>/dev/zero", [3]State{}},
		{"</dev/null >/dev/null 2>/dev/null", [3]State{}},
		{"0<>/dev/null 1<>/dev/null 2<>/dev/null", [3]State{null, null, null}},
		{"<&- >/dev/zero 2>/dev/null", [3]State{closed}},
		{"</dev/null >&- 2>/dev/null", [3]State{Given, closed}},
		{"<&- >&- 2>&-", [3]State{closed, closed, closed}},
		{"<&- 1<>/dev/null 2>&-", [3]State{closed, null, closed}},
	} {
		file := t.TempDir() + "/states"
		cmd := exec.Command("sh", "-c", `exec "$0" `+c.redirect, exe)
		cmd.Env = append(os.Environ(), look+"="+file)
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", c.redirect, err)
		}
		got, err := os.ReadFile(file)
		if want := strings.Trim(fmt.Sprint(c.want), "[]"); err != nil || string(got) != want {
			t.Errorf("%s: states %q, want %q (%v)", c.redirect, got, want, err)
		}
	}
}
