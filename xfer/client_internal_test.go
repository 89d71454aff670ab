package xfer

import (
	"errors"
	"strings"
	"testing"
)

func TestSeveralSourcesNeedNames(t *testing.T) {
	c := Client{}
	for _, paths := range [][]string{{"a", "dir/."}, {".", "b"}, {"a", "..", "b"}, {"/", "b"}} {
		for what, try := range map[string]func() error{
			"push": func() error { _, err := c.Push(t.Context(), paths, Endpoint{}, "x", Options{}); return err },
			"pull": func() error {
				_, err := c.Pull(t.Context(), Endpoint{}, paths, t.TempDir(), Options{})
				return err
			},
		} {
			if err := try(); !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), `"b"`) || strings.Contains(err.Error(), `"a"`) {
				t.Errorf("%s of %q: %v", what, paths, err)
			}
		}
	}
	if err := checkNames([]string{"."}); err != nil {
		t.Error(err)
	}
}
