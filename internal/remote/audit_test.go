package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

// Requests, input and reports of an audit arrive unchanged and in order.
func TestAudit(t *testing.T) {
	origin, far := conversations(t)
	asked := &Audit{
		Path: "a b\xff", Hash: "xxh3", PieceBytes: 1 << 20, Follow: true, Rules: []string{"- *.o", "+ \xfe"}, Listed: true, Recursive: true,
	}
	long := bytes.Repeat([]byte("0123456789"), 3*outputBytes/10)
	told := &Finding{Kind: "bad", Path: []byte("x\xff"), Differs: 5, Ranges: [][2]int64{{0, 4}, {9, 12}}, Text: []byte("\xfetext")}
	tally, all := Tally{Bytes: 1, Files: 2, TotalBytes: 3, TotalKnown: true}, &Audited{Files: 1, Dirs: 2, Links: 3, Bytes: 4, LeftOut: 5}
	ended := make(chan error, 1)
	var given bytes.Buffer
	go func() {
		got, err := far.Asked()
		if err == nil && !reflect.DeepEqual(got.Audit, asked) {
			err = fmt.Errorf("asked for %+v, want %+v", got.Audit, asked)
		}
		input, from := io.Pipe()
		go func() { _ = far.HearInput(t.Context(), from) }()
		_, inErr := given.ReadFrom(input)
		_, outErr := far.Manifest().Write(long)
		ended <- errors.Join(err, inErr, outErr, far.Found(told), far.HasRead(tally), far.HasAudited(all))
	}()
	var text bytes.Buffer
	got, err := origin.AskAudit(t.Context(), asked, func(w io.Writer) error {
		_, err := w.Write(long)
		return err
	}, AuditListener{
		Manifest: &text,
		Finding: func(f *Finding) error {
			if !reflect.DeepEqual(f, told) {
				t.Errorf("found %+v, want %+v", f, told)
			}
			return nil
		},
		Tally: func(is Tally) {
			if is != tally {
				t.Errorf("read %+v, want %+v", is, tally)
			}
		},
	})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err != nil || !reflect.DeepEqual(got, all) || !bytes.Equal(text.Bytes(), long) || !bytes.Equal(given.Bytes(), long) {
		t.Errorf("%+v, %v, %d bytes of a manifest, %d given", got, err, text.Len(), given.Len())
	}
}

// An audit ends with the error of its input if that fails, and a refusal has
// the far end's text.
func TestAuditThatFails(t *testing.T) {
	bad := errors.New("a bad manifest")
	for name, c := range map[string]struct {
		input func(io.Writer) error
		says  string
	}{
		"input": {func(w io.Writer) error {
			_, err := w.Write([]byte("some of it"))
			return errors.Join(err, bad)
		}, bad.Error()},
		"refusal": {nil, "nothing there"},
	} {
		origin, far := conversations(t)
		go func() {
			_, _ = far.Asked()
			if name == "refusal" {
				_ = far.Refuse("nothing there", 2)
			}
			_ = far.Hear(t.Context())
		}()
		_, err := origin.AskAudit(t.Context(), &Audit{Path: "p"}, c.input, AuditListener{})
		var own *InputError
		var refused *RefusedError
		if err == nil || err.Error() != c.says || errors.As(err, &own) != (name == "input") || errors.As(err, &refused) && refused.Class != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAudit(f *testing.F) {
	for _, text := range []string{
		`{"path":"YQ==","rules":["LSBh"]}`, `{"kind":"bad","ranges":[[0,4],[9,12]]}`, `{"files":1,"bytes":-1}`, `{"kind":"bad","ranges":[[4,0]]}`, `{"total_bytes":-9223372036854775808}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if a, err := decodeAudit(body); err == nil && a.Path == "" {
			t.Errorf("%+v", a)
		}
		if told, err := decodeFinding(body); err == nil {
			for i, r := range told.Ranges {
				if r[0] < 0 || r[0] >= r[1] || i > 0 && r[0] <= told.Ranges[i-1][1] {
					t.Errorf("%v", told.Ranges)
				}
			}
		}
		if is, err := decodeTally(body); err == nil && (is.Bytes < 0 || is.Files < 0 || is.TotalBytes < 0) {
			t.Errorf("%+v", is)
		}
		if all, err := decodeAudited(body); err == nil && (all.Files < 0 || all.Dirs < 0 || all.Links < 0 || all.Bytes < 0 || all.LeftOut < 0) {
			t.Errorf("%+v", all)
		}
	})
}

// A range that begins after its end is refused, and so is one that begins
// before the end of the previous one.
func TestFindingsThatAreRefused(t *testing.T) {
	for _, ranges := range []string{"[[1,1]]", "[[-1,2]]", "[[0,2],[2,4]]", "[[0,2],[1,4]]", strings.Repeat("[[0,1]", 1) + strings.Repeat(",[2,1]", maxRanges) + "]"} {
		if f, err := decodeFinding([]byte(`{"kind":"bad","ranges":` + ranges + `}`)); !errors.Is(err, errMessage) {
			t.Errorf("%.40s: %+v, %v", ranges, f, err)
		}
	}
}
