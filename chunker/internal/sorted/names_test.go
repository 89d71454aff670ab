package sorted

import (
	"bytes"
	"testing"
)

func FuzzEachDirent(f *testing.F) {
	record := append(make([]byte, 16), 24, 0, 8, 'n', 'a', 'm', 'e', 0)
	f.Add(record)
	f.Add(append(record, 1, 2, 3))
	f.Fuzz(func(t *testing.T, records []byte) {
		_ = EachDirent(records, func(name []byte) error {
			if len(name) == 0 || bytes.IndexByte(name, 0) >= 0 {
				t.Errorf("name %q", name)
			}
			return nil
		})
	})
}
