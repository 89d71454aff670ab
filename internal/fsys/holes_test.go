package fsys

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A query for the end of data takes time proportional to the data, so each
// range is queried once, in however many steps a file is read.
func TestDataEndIsAskedForOnce(t *testing.T) {
	const size = 1000
	holes := [][2]int64{{300, 500}, {700, 720}}
	asked := 0
	data := DataEnd{Seek: func(off int64, whence int) (int64, error) {
		if whence != unix.SEEK_HOLE {
			t.Errorf("whence %d", whence)
		}
		asked++
		for _, hole := range holes {
			if off < hole[0] {
				return hole[0], nil
			}
		}
		return size, nil
	}}
	for _, part := range [][2]int64{{0, 300}, {500, 700}, {720, size}} {
		for off := part[0]; off < part[1]; off += 10 {
			if stop := data.Behind(off, size); stop != part[1] {
				t.Fatalf("data at %d ends at %d, not %d", off, stop, part[1])
			}
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times about 3 ranges", asked)
	}
}

func TestDataEndWithoutHoles(t *testing.T) {
	for name, seek := range map[string]func(int64, int) (int64, error){
		"refused":    func(int64, int) (int64, error) { return 0, unix.EINVAL },
		"cut short":  func(int64, int) (int64, error) { return 0, unix.ENXIO },
		"no further": func(off int64, _ int) (int64, error) { return off, nil },
		"beyond":     func(int64, int) (int64, error) { return 2000, nil },
	} {
		data := DataEnd{Seek: seek}
		if stop := data.Behind(10, 1000); stop != 1000 {
			t.Errorf("%s: %d", name, stop)
		}
	}
}
