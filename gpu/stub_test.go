//go:build !linux || !cgo

package gpu

import (
	"errors"
	"testing"
)

func TestNotBuilt(t *testing.T) {
	_, err := Open()
	var probe *ProbeError
	if !errors.As(err, &probe) || probe.Reason != NotBuilt || !errors.Is(err, ErrUnsupported) || probe.Hint == "" {
		t.Errorf("open: %v", err)
	}
}
