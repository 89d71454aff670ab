package gpu

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestError(t *testing.T) {
	for code, want := range map[int]error{2: ErrOutOfMemory, 801: ErrUnsupported, 1: nil, 999: nil} {
		err := &Error{Op: "do it", GPU: 3, Code: code, Name: "CUDA_ERROR_X"}
		for _, sentinel := range []error{ErrOutOfMemory, ErrUnsupported, ErrClosed} {
			if errors.Is(err, sentinel) != (sentinel == want) {
				t.Errorf("%v is %v: %t", err, sentinel, errors.Is(err, sentinel))
			}
		}
	}
	err := &Error{Op: "allocate 5 bytes", GPU: 3, Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY"}
	if want := "allocate 5 bytes on GPU 3: CUDA_ERROR_OUT_OF_MEMORY (2)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// Codes that concern the whole machine have their own hint, during
// initialization and in later calls.
func TestHintsOfSystem(t *testing.T) {
	for code, want := range map[int]string{802: "nvidia-fabricmanager", 804: "cuda-compat", 805: "MPS", 1: ""} {
		if got := (&Error{Code: code}).Hint(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d: %q, want one with %q", code, got, want)
		}
	}
}

// TestNames: every reason and class has a distinct name, in JSON too.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := NotBuilt; r <= BadDevice; r++ {
		b, err := json.Marshal(r)
		if err != nil || seen[string(b)] || string(b) != `"`+r.String()+`"` || r.String() == "unknown" {
			t.Errorf("reason %d is %s, %v", r, b, err)
		}
		seen[string(b)] = true
	}
	for c := PIX; c <= SYS; c++ {
		b, err := json.Marshal(c)
		if err != nil || seen[string(b)] || c.String() == "unknown" {
			t.Errorf("class %d is %s, %v", c, b, err)
		}
		seen[string(b)] = true
	}
	if ProbeReason(0).String() != "unknown" || PathClass(0).String() != "unknown" {
		t.Error("a value that is none has a name")
	}
}

// An error that a context merely repeats is reported once; other errors of
// closing are reported too.
func TestWithClose(t *testing.T) {
	launch, again := &Error{Op: "launch", Code: 700}, &Error{Op: "free", Code: 700}
	other, plain := &Error{Op: "free", Code: 1}, errors.New("unmap")
	for _, tc := range []struct {
		err, closing error
		want         string
	}{
		{nil, nil, ""},
		{launch, nil, launch.Error()},
		{nil, again, again.Error()},
		{launch, again, launch.Error()},
		{launch, other, launch.Error() + "\n" + other.Error()},
		{plain, again, plain.Error() + "\n" + again.Error()},
		{launch, plain, launch.Error() + "\n" + plain.Error()},
	} {
		got := ""
		if err := WithClose(tc.err, tc.closing); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%v, then %v: %q, want %q", tc.err, tc.closing, got, tc.want)
		}
	}
}
