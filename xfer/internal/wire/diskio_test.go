package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

func TestDiskIORoundTrip(t *testing.T) {
	for _, want := range []DiskIO{{}, {1, 2, 3}, {math.MaxInt64, 0, 1}, {0, 0, math.MaxInt64}} {
		if got, err := DecodeDiskIO(want.Encode()); err != nil || got != want {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
}

func TestBadDiskIO(t *testing.T) {
	good := DiskIO{1, 300, 3}.Encode()
	for _, b := range [][]byte{
		nil, good[:2], append(good, 0), append(binary.AppendUvarint(nil, 1<<63), 0, 0),
	} {
		if d, err := DecodeDiskIO(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("%v: %+v, %v", b, d, err)
		}
	}
}

func TestDiskIOThatIsNotTakenForGranted(t *testing.T) {
	for d, want := range map[DiskIO]bool{
		{}: true, {Buffered: 1}: true, {Direct: 1}: false, {DontCache: 1}: false,
	} {
		if d.CacheOnly() != want {
			t.Errorf("%+v: through the page cache only is %v", d, !want)
		}
	}
}
