package chunker

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMarksOnADiskThatTellsWhenClosed: where closing tells errors that fsync(2) does not, a
// mark asks for those. Where there is no descriptor to ask with, it says nothing.
func TestMarksOnADiskThatTellsWhenClosed(t *testing.T) {
	for errno, lost := range map[unix.Errno]bool{unix.EIO: true, unix.EMFILE: false} {
		t.Run(errno.Error(), func(t *testing.T) {
			f := newPartialFile("f", 4)
			s := sinkInto(t, t.TempDir(), SinkOptions{})
			temp, err := s.CreatePartial(f.entry, nil, &f.partial)
			if err != nil {
				t.Fatal(err)
			}
			s.deviceOf(temp.dir).tells = false
			f.write(t, temp, 0, 1)
			flush := s.calls.flush
			s.calls.flush = func(int) error { return errno }
			if err := temp.Mark(); lost != errors.Is(err, errno) {
				t.Errorf("a mark met %v", err)
			}
			s.calls.flush = flush
			f.write(t, temp, 2, 3)
			err = errors.Join(temp.Mark(), temp.Finish(), s.Publish([]*Temp{temp})[0])
			if lost != errors.Is(err, errno) || !lost && err != nil {
				t.Errorf("in the end: %v", err)
			}
		})
	}
}
